"""The samples of a probe for people. In: samples of one run. Out: tables: the devices with what is
known of them, and a row per metric with a column per device.

A label that each device has once (its uuid, a mount's source) is left out, and series that are
alike are one row: `--raw` has everything.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from nodevitals.commands.probe_values import human
from nodevitals.families import PREFIX, Family

# What a sample is about: the first of these that it has is a column.
SUBJECTS = (("device", "port"), ("device",), ("interface",), ("mountpoint",), ("peer", "port"))
# Labels of which a subject may have one value now and another one later.
_STATES = ("action", "cause", "code", "fault", "kind", "reason", "state", "step")
# So many devices are compared side by side; more are in further tables.
COLUMNS = 8
# So many series that are alike become one row.
ALIKE = 3
NONE = "-"

Table = list[Sequence[str]]


class Shown(NamedTuple):
    """A sample with its family."""

    family: Family
    labels: Mapping[str, str]
    value: float

    @property
    def metric(self) -> str:
        """The name without the prefix that all have."""
        return self.family.name.removeprefix(PREFIX)

    @property
    def names(self) -> tuple[str, ...]:
        """The labels that say what it is about."""
        known = (names for names in SUBJECTS if all(name in self.labels for name in names))
        return next(known, ())

    @property
    def subject(self) -> str:
        """What it is about: `0`, `mlx5_0/1`, `/data`; '' for the node."""
        return "/".join(self.labels[name] for name in self.names)

    @property
    def is_fact(self) -> bool:
        """Whether its labels are what it says."""
        return self.family.name.endswith("_info") and bool(self.subject)


class _Row(NamedTuple):
    metric: str
    labels: str
    cells: dict[str, str]
    help: str


def tables(samples: Sequence[Shown], describe: bool = False) -> Iterator[Table]:
    """The tables, each with its head: facts of the devices, the node's samples, the devices'."""
    yield from _fact_tables([one for one in samples if one.is_fact])
    rest = [one for one in samples if not one.is_fact]
    rows = [row for members in _by_family(rest) for row in _rows(members)]
    plain = [row for row in rows if "" in row.cells]
    if plain:
        yield _table(plain, [""], describe)
    subjects = list(dict.fromkeys(one.subject for one in rest if one.subject))
    about = [row for row in rows if "" not in row.cells]
    if len(subjects) > COLUMNS >= len(about):
        yield _turned(about, subjects)
        return
    for first in range(0, len(subjects), COLUMNS):
        chosen = subjects[first : first + COLUMNS]
        yield _table([row for row in about if set(chosen) & set(row.cells)], chosen, describe)


def _by_family(samples: Sequence[Shown]) -> list[list[Shown]]:
    found: dict[tuple[str, bool], list[Shown]] = {}
    for one in samples:
        found.setdefault((one.family.name, bool(one.subject)), []).append(one)
    return list(found.values())


def _fact_tables(facts: Sequence[Shown]) -> Iterator[Table]:
    """A table per info metric; what an earlier one has is not repeated."""
    printed: set[str] = set()
    for members in _by_family(facts):
        names = members[0].names
        labels = [
            label
            for label in members[0].labels
            if label not in (*names, *printed) and any(one.labels.get(label) for one in members)
        ]
        printed.update(labels)
        if labels:
            head = ["/".join(names), *labels]
            yield [
                [word.upper().replace("_", " ") for word in head],
                *(
                    [one.subject, *(one.labels.get(label) or NONE for label in labels)]
                    for one in members
                ),
            ]


def _rows(members: Sequence[Shown]) -> list[_Row]:
    """The rows of one family; one row where the series differ in nothing but their labels."""
    dropped = {*members[0].names, *_properties(members)}
    rows: dict[str, _Row] = {}
    names: set[str] = set()
    for one in members:
        own = {name: value for name, value in one.labels.items() if name not in dropped}
        labels = " ".join(f"{name}={value}" for name, value in own.items())
        row = rows.setdefault(labels, _Row(one.metric, labels, {}, one.family.help))
        row.cells[one.subject] = human(one.family, one.value)
        names.update(own)
    first = next(iter(rows.values()))
    if len(rows) >= ALIKE and all(row.cells == first.cells for row in rows.values()):
        each = ", ".join(name for name in members[0].labels if name in names)
        return [first._replace(labels=f"each {each} ({len(rows)})")]
    return list(rows.values())


def _properties(members: Sequence[Shown]) -> set[str]:
    """The labels that say no more than the subject: each subject has one value of them."""
    values: dict[str, dict[str, set[str]]] = {}
    for one in members:
        for label, value in one.labels.items():
            values.setdefault(label, {}).setdefault(one.subject, set()).add(value)
    if not members[0].subject:
        return set()
    return {
        label
        for label, found in values.items()
        if label not in _STATES and all(len(several) == 1 for several in found.values())
    }


def _turned(rows: Sequence[_Row], subjects: Sequence[str]) -> Table:
    """A row per subject: of hundreds of peers, each with a few metrics."""
    heads = [f"{row.metric} {row.labels}".rstrip() for row in rows]
    return [
        ["", *heads],
        *([subject, *(row.cells.get(subject, NONE) for row in rows)] for subject in subjects),
    ]


def _table(rows: Sequence[_Row], subjects: Sequence[str], describe: bool) -> Table:
    labelled = any(row.labels for row in rows)
    heads = [f"#{subject}" if subject.isdecimal() else subject or "VALUE" for subject in subjects]
    head = ["METRIC", *["LABELS"] * labelled, *heads, *["HELP"] * describe]
    return [
        head,
        *(
            [
                row.metric,
                *[row.labels or NONE] * labelled,
                *(row.cells.get(subject, NONE) for subject in subjects),
                *[row.help] * describe,
            ]
            for row in rows
        ),
    ]
