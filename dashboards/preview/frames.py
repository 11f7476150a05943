"""A query's result as Grafana's data frames: one per series, or one table per query."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

Kind = Literal["time", "number", "string"]
Series = dict[str, Any]
"""`metric` and `values` of Prometheus' answer."""
VALUE = "Value"
LEGEND = re.compile(r"\{\{\s*(.+?)\s*\}\}")


@dataclass(frozen=True)
class Field:
    """A column. `legend` is the name that the query gives it."""

    name: str
    kind: Kind
    values: list[Any]
    labels: dict[str, str] = field(default_factory=dict)
    legend: str = ""


@dataclass(frozen=True)
class Frame:
    """Columns of one length."""

    ref: str
    fields: list[Field]

    @property
    def rows(self) -> list[dict[str, Any]]:
        """Return the rows by the names of their columns."""
        names = [one.name for one in self.fields]
        columns = [one.values for one in self.fields]
        return [dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True)]

    @property
    def numbers(self) -> list[Field]:
        """Return the columns with numbers."""
        return [one for one in self.fields if one.kind == "number"]


def number(text: str) -> float:
    """Return a sample's value."""
    return float(text.replace("Inf", "inf"))


def series_frames(ref: str, legend: str, expression: str, found: Sequence[Series]) -> list[Frame]:
    """Return one frame per series."""
    return [
        Frame(
            ref,
            [
                Field("Time", "time", [at for at, _ in one["values"]]),
                Field(
                    VALUE,
                    "number",
                    [number(value) for _, value in one["values"]],
                    one["metric"],
                    _legend(one["metric"], legend, expression),
                ),
            ],
        )
        for one in found
    ]


def _legend(labels: dict[str, str], legend: str, expression: str) -> str:
    """Return a series' name; '' where it depends on the labels of the others."""
    if legend == "__auto" and labels:
        return ""
    if legend and legend != "__auto":
        return LEGEND.sub(lambda found: labels.get(found[1], ""), legend)
    rest = {name: value for name, value in labels.items() if name != "__name__"}
    name = labels.get("__name__", "")
    return name + (selector(rest) if rest else "") if name or rest else expression


def selector(labels: dict[str, str]) -> str:
    """Return labels as a selector, sorted."""
    return "{" + ", ".join(f'{name}="{labels[name]}"' for name in sorted(labels)) + "}"


def table_frames(answers: dict[str, Sequence[Series]]) -> list[Frame]:
    """Return one table per query: time, the labels of all series, and the value. With several
    queries the value's name has the query's.
    """
    frames = []
    for ref, found in answers.items():
        names = list(dict.fromkeys(name for one in found for name in sorted(one["metric"])))
        points = [(one["metric"], at, value) for one in found for at, value in one["values"]]
        points.sort(key=lambda point: float(point[1]))
        frames.append(
            Frame(
                ref,
                [
                    Field("Time", "time", [at for _, at, _ in points]),
                    *(
                        Field(name, "string", [labels.get(name, "") for labels, _, _ in points])
                        for name in names
                    ),
                    Field(
                        f"{VALUE} #{ref}" if len(answers) > 1 else VALUE,
                        "number",
                        [number(value) for _, _, value in points],
                    ),
                ],
            )
        )
    return frames


def title(one: Field, frames: Sequence[Frame]) -> str:
    """Return the name that Grafana shows for a column. With automatic legends: the label's value
    where all series have one label of the same name, else all labels.
    """
    if one.legend:
        return one.legend
    if not one.labels:
        return one.name
    names = {name for frame in frames for other in frame.fields for name in other.labels}
    if len(names) == 1:
        return one.labels[names.pop()]
    return selector(one.labels)


def bucket_frames(frames: Sequence[Frame]) -> list[Frame]:
    """Return cumulative buckets as the counts of each bucket, lowest first."""
    ordered = sorted(frames, key=lambda frame: number(frame.fields[1].labels["le"]))
    found = []
    below: dict[float, float] = {}
    for frame in ordered:
        times, counts = frame.fields[0].values, frame.fields[1].values
        found.append(
            replace(
                frame,
                fields=[
                    frame.fields[0],
                    replace(
                        frame.fields[1],
                        legend=frame.fields[1].labels["le"],
                        values=[
                            max(count - below.get(at, 0.0), 0.0)
                            for at, count in zip(times, counts, strict=True)
                        ],
                    ),
                ],
            )
        )
        below = dict(zip(times, counts, strict=True))
    return found
