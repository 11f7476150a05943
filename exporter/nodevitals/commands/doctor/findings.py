"""A finding is one row of the table. In: findings. Out: the table, and the exit status.

Samples are the parsed text of /metrics. Raises ValueError for another text.
"""

from __future__ import annotations

import itertools
import shutil
import sys
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import msgspec
from prometheus_client.parser import text_string_to_metric_families

from nodevitals.commands import terminal

OK, PROBLEM, UNKNOWN, OFF = "ok", "problem", "unknown", "off"
MAX_CHARACTERS = 400
_NARROWEST = 24
_HEAD = ("CHECK", "STATE", "DETAIL", "REMEDY")


class Finding(msgspec.Struct, frozen=True):
    """`state` is ok, problem, unknown (could not be determined) or off (absent by choice)."""

    check: str
    state: str
    detail: str
    remedy: str = ""


def status_of(findings: Iterable[Finding]) -> int:
    """The exit status: 1 with a problem, 2 where something is unknown, otherwise 0."""
    states = {finding.state for finding in findings}
    return 1 if PROBLEM in states else 2 if UNKNOWN in states else 0


def printable(text: str, characters: int = MAX_CHARACTERS) -> str:
    """A text from another program as one line of bounded length, for tables."""
    clean = terminal.printable(" ".join(text[: 4 * characters].split()))
    return clean if len(clean) <= characters else f"{clean[:characters]}…"


def listed(names: Sequence[str], limit: int = 5) -> str:
    """Names, separated by commas; of many only the first."""
    rest = len(names) - limit
    return ", ".join(names[:limit]) + (f" and {rest} more" if rest > 0 else "")


def ago(seconds: float) -> str:
    """An age for people: `40 s`, `12 min`, `3 h`, `2 d`."""
    for unit, length in (("d", 86400), ("h", 3600), ("min", 60)):
        if seconds >= 2 * length:
            return f"{seconds / length:.0f} {unit}"
    return f"{max(seconds, 0):.0f} s"


def print_findings(findings: Sequence[Finding]) -> None:
    """The table: a line per finding; on a terminal, cells are wrapped to its width."""
    rows = [msgspec.structs.astuple(finding) for finding in findings]
    if sys.stdout.isatty():
        rows = [line for row in rows for line in _wrapped(row, rows)]
    terminal.print_table(_HEAD, rows)


def _wrapped(row: Sequence[str], rows: Sequence[Sequence[str]]) -> list[tuple[str, ...]]:
    left = sum(max(len(row[column]) for row in (_HEAD, *rows)) + 2 for column in (0, 1))
    width = max((shutil.get_terminal_size().columns - left - 2) // 2, _NARROWEST)
    detail, remedy = (
        textwrap.wrap(cell, width, break_on_hyphens=False) or [""] for cell in row[2:]
    )
    columns = ([row[0]], [row[1]], detail, remedy)
    return list(itertools.zip_longest(*columns, fillvalue=""))


class Samples(NamedTuple):
    """Labels and values by the name of the metric."""

    values: Mapping[str, list[tuple[Mapping[str, str], float]]]

    def by_target(self, name: str) -> dict[tuple[str, str], float]:
        """The values of a metric by probe and target."""
        return {
            (labels.get("probe", ""), labels.get("target", "")): value
            for labels, value in self.values.get(name, ())
        }

    def value(self, name: str) -> float | None:
        """The value of a metric that has one series; None without it."""
        return next((value for _, value in self.values.get(name, ())), None)

    def label(self, name: str, label: str) -> str:
        """A label of a metric that has one series; '' without it."""
        return next((labels.get(label, "") for labels, _ in self.values.get(name, ())), "")


def parse_samples(body: bytes) -> Samples:
    """The samples of an exposition. Raises ValueError."""
    values: dict[str, list[tuple[Mapping[str, str], float]]] = {}
    try:
        for family in text_string_to_metric_families(body.decode()):
            for sample in family.samples:
                values.setdefault(sample.name, []).append((sample.labels, sample.value))
    except (ValueError, LookupError, TypeError, AttributeError) as error:
        raise ValueError("not the format of Prometheus") from error
    return Samples(values)
