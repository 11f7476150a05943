"""A series over time, written as promtool reads it.

A value holds, or rises evenly, until the next change. A series that ends gets one stale marker, as
Prometheus writes it when a target stops exposing a series or cannot be scraped.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Iterable

import msgspec

STEP_SECONDS = 15
"""Seconds between two scrapes, and between two evaluations."""


class Change(msgspec.Struct, frozen=True, order=True):
    """From `at` (seconds) on, the series has this value and rises by `slope` per second.

    None: the series is not exposed.
    """

    at: float
    value: float | None
    slope: float = 0.0


class Series:
    """One series: its name with its labels, and its changes."""

    def __init__(self, name: str, /, **labels: str) -> None:
        self.name = name
        self.labels = labels
        self._changes: list[Change] = []

    def set(self, value: float | None, slope: float = 0.0) -> None:
        """Set the value from the beginning on."""
        self._changes = [Change(0, value, slope)]

    def value(self, at: float) -> float | None:
        """Return the value at a time."""
        position = bisect_right(self._changes, at, key=_time)
        return _value(self._changes[position - 1], at) if position else None

    def replace(self, value: float | None, at: float, until: float, slope: float = 0.0) -> None:
        """Change the value between two times; after the second it is what it would have been.

        Changes are made in order of time: those after `at` are lost.
        """
        position = bisect_right(self._changes, until, key=_time)
        after = self._changes[position - 1] if position else Change(0, None)
        inside = [one for one in self._changes if not at <= one.at <= until]
        end = Change(until, _value(after, until), after.slope)
        self._changes = sorted([*inside, Change(at, value, slope), end], key=_time)

    def document(self, end: float, hidden: Iterable[tuple[float, float]] = ()) -> dict[str, str]:
        """Return the series from 0 to `end` (seconds) as promtool's input.

        Between two times of `hidden` there is no sample.
        """
        shown = Series(self.name)
        shown._changes = list(self._changes)
        for at, until in hidden:
            shown.replace(None, at, until)
        labels = ", ".join(f'{name}="{text}"' for name, text in self.labels.items() if text)
        return {"series": f"{self.name}{{{labels}}}", "values": shown._cells(end)}

    def _cells(self, end: float) -> str:
        total = math.floor(end / STEP_SECONDS) + 1
        found: list[str] = []
        exposed = False
        position = 0
        for index, change in enumerate(self._changes):
            following = self._changes[index + 1].at if index + 1 < len(self._changes) else math.inf
            first = _sample(change.at, total)
            count = _sample(following, total) - first
            if count <= 0:
                continue
            if first > position:
                found.append(_run("_", first - position))
            position = first + count
            if change.value is None:
                found += (["stale"] if exposed else []) + _blank(count - exposed)
                exposed = False
            else:
                at = first * STEP_SECONDS
                found.append(_line(_value(change, at) or 0.0, change.slope * STEP_SECONDS, count))
                exposed = True
        return " ".join(found) or "_"


def _time(change: Change) -> float:
    return change.at


def _value(change: Change, at: float) -> float | None:
    if change.value is None or not change.slope:
        return change.value
    return change.value + (at - change.at) * change.slope


def _sample(at: float, total: int) -> int:
    """Return the number of the first sample at or after a time."""
    return min(total, math.ceil(min(at / STEP_SECONDS, total)))


def _line(value: float, step: float, count: int) -> str:
    if count == 1:
        return f"{value:.15g}"
    if not step:
        return f"{value:.15g}x{count - 1}"
    return f"{value:.15g}{step:+.15g}x{count - 1}"


def _run(cell: str, count: int) -> str:
    return cell if count == 1 else f"{cell}x{count}"


def _blank(count: int) -> list[str]:
    return [_run("_", count)] if count else []
