"""The transformations that the dashboards use, as Grafana does them, and a panel's table as text.

`merge`, `organize`, `groupingToMatrix`, `sortBy`; any other is an error.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from dashboards.preview.frames import Field, Frame, title
from dashboards.preview.values import Json, settings, shown

Row = dict[str, Any]


def transformed(frames: list[Frame], panel: Json) -> list[Frame]:
    """Return the frames after the panel's transformations."""
    for step in panel.get("transformations", ()):
        if step["id"] not in TRANSFORMATIONS:
            raise ValueError(f"unknown transformation {step['id']}")
        if not step.get("disabled"):
            frames = TRANSFORMATIONS[step["id"]](frames, step.get("options", {}))
    return frames


def merge(frames: list[Frame], _options: Json) -> list[Frame]:
    """Join tables into one. Rows with the same values in the columns that all tables have become
    one row, unless they contradict each other in another column.
    """
    used = [frame for frame in frames if frame.fields]
    if len(frames) <= 1 or not used:
        return frames[:1]
    kinds = {one.name: one for frame in used for one in reversed(frame.fields)}
    names = list(dict.fromkeys(one.name for frame in used for one in frame.fields))
    keys = [
        name for name in names if all(name in [one.name for one in frame.fields] for frame in used)
    ]
    if not keys:
        return frames
    found: dict[tuple[Any, ...], list[Row]] = {}
    order: list[Row] = []
    for frame in used:
        for row in frame.rows:
            same = found.setdefault(tuple(row[key] for key in keys), [])
            # Where two rows fit, Grafana fills both.
            fitting = [other for other in same if _agree(other, row)]
            for other in fitting:
                other.update(row)
            if not fitting:
                same.append(dict(row))
                order.append(same[-1])
    columns = [
        replace(kinds[name], labels={}, legend="", values=[row.get(name) for row in order])
        for name in names
    ]
    return [Frame(used[0].ref, columns)]


def _agree(one: Row, other: Row) -> bool:
    return all(one.get(name) is None or one[name] == value for name, value in other.items())


def organize(frames: list[Frame], options: Json) -> list[Frame]:
    """Keep, order and rename columns."""
    included = {name for name, kept in (options.get("includeByName") or {}).items() if kept}
    excluded = {name for name, gone in (options.get("excludeByName") or {}).items() if gone}
    order = options.get("indexByName") or {}
    names = options.get("renameByName") or {}
    found = []
    for frame in frames:
        kept = [
            (title(one, frames), one)
            for one in frame.fields
            if (not included or title(one, frames) in included)
            and title(one, frames) not in excluded
        ]
        kept.sort(key=lambda pair: order.get(pair[0], len(order) + len(kept)))
        found.append(
            Frame(
                frame.ref,
                [
                    replace(one, name=names[old], legend="", labels={}) if names.get(old) else one
                    for old, one in kept
                ],
            )
        )
    return found


def grouping_to_matrix(frames: list[Frame], options: Json) -> list[Frame]:
    """Make a matrix: a row per value of one column, a column per value of another."""
    if len(frames) != 1:
        return frames
    column, row, value = (
        options.get(key) or usual
        for key, usual in (("columnField", "Time"), ("rowField", "Time"), ("valueField", "Value"))
    )
    [frame] = frames
    by_title = {title(one, frames): one for one in frame.fields}
    if not {column, row, value} <= set(by_title):
        return frames
    cells = {
        (down, across): number
        for down, across, number in zip(
            by_title[row].values, by_title[column].values, by_title[value].values, strict=True
        )
    }
    empty = {"false": False, "true": True, "null": None}.get(options.get("emptyValue", ""), "")
    downs = list(dict.fromkeys(by_title[row].values))
    across = list(dict.fromkeys(by_title[column].values))
    kind = by_title[value].kind
    return [
        Frame(
            frame.ref,
            [
                Field(f"{row}\\{column}", "string", downs),
                *(
                    Field(str(one), kind, [cells.get((down, one), empty) for down in downs])
                    for one in across
                ),
            ],
        )
    ]


def sort_by(frames: list[Frame], options: Json) -> list[Frame]:
    """Order the rows by one column."""
    found = []
    for frame in frames:
        order = list(range(len(frame.fields[0].values))) if frame.fields else []
        for rule in (options.get("sort") or ())[:1]:
            for one in frame.fields:
                if title(one, frames) == rule["field"]:
                    order.sort(key=_sorter(one.values), reverse=bool(rule.get("desc")))
        found.append(
            Frame(
                frame.ref,
                [replace(one, values=[one.values[row] for row in order]) for one in frame.fields],
            )
        )
    return found


TRANSFORMATIONS: dict[str, Callable[[list[Frame], Json], list[Frame]]] = {
    "merge": merge,
    "organize": organize,
    "groupingToMatrix": grouping_to_matrix,
    "sortBy": sort_by,
}


def table_rows(panel: Json, frames: list[Frame]) -> tuple[list[Field], list[int]]:
    """Return the columns of a table panel that are not hidden, and its rows' order."""
    if not frames:
        return [], []
    frame = frames[panel.get("options", {}).get("frameIndex") or 0]
    kept = [
        one
        for one in frame.fields
        if not settings(panel, one, frames, frame.ref)["custom"].get("hidden")
    ]
    order = list(range(len(frame.fields[0].values))) if frame.fields else []
    for rule in reversed(panel.get("options", {}).get("sortBy") or ()):
        for one in frame.fields:
            if title(one, frames) == rule["displayName"]:
                order.sort(key=_sorter(one.values), reverse=bool(rule.get("desc")))
    return kept, order


def _sorter(values: Sequence[Any]) -> Callable[[int], Any]:
    """Return a key for rows; what is missing is the lowest."""

    def key(row: int) -> tuple[int, float, str]:
        value = values[row]
        if value is None or value == "":
            return (0, 0.0, "")
        return (2, 0.0, value) if isinstance(value, str) else (1, value, "")

    return key


def text_table(panel: Json, frames: list[Frame], now: float) -> list[list[str]]:
    """Return a panel's result as lines of cells, the first of them the titles. Series are one line
    each, with their last value.
    """
    if panel["type"] == "table":
        columns, order = table_rows(panel, frames)
        configs = [settings(panel, one, frames) for one in columns]
        lines = [
            [
                shown(one.values[row], config, now).text
                for one, config in zip(columns, configs, strict=True)
            ]
            for row in order
        ]
        return [[title(one, frames) for one in columns], *lines]
    lines = [["series", "last", "lowest", "highest", "points"]]
    for frame in frames:
        for one in frame.numbers:
            config = settings(panel, one, frames, frame.ref)
            values = [value for value in one.values if value is not None]
            texts = [
                shown(value, config, now).text
                for value in ((values[-1], min(values), max(values)) if values else ("", "", ""))
            ]
            lines.append([title(one, frames), *texts, str(len(values))])
    return lines
