"""Series as stretches without change: samples in, one record per stretch out.

Thirty days of a fault are a few records, not 43,200 samples.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from nodevitals.commands.rules.backtest.server import TimeSeries

Labels = tuple[tuple[str, str], ...]
"""Sorted, with `__name__`."""


class Stretch(msgspec.Struct):
    """Samples from `start` to `end` at every step; `value` as Prometheus writes it."""

    start: float
    end: float
    value: str


class Stretches:
    """The series of a plan."""

    def __init__(self, step: float) -> None:
        self._step = step
        self.series: dict[Labels, list[Stretch]] = {}

    def add(
        self,
        found: Iterable[TimeSeries],
        name: str,
        labels: dict[str, str],
        keep_values: bool,
    ) -> None:
        """Add series under a name and with labels, of which '' removes one; in the order of time.

        `keep_values`: a new value begins a new stretch. Otherwise a stretch is the time in which
        there are samples, with its first value.
        """
        for series in found:
            merged = {**series.metric, **labels, "__name__": name}
            key = tuple(sorted((label, text) for label, text in merged.items() if text))
            stretches = self.series.setdefault(key, [])
            last = stretches[-1] if stretches else None
            for time, value in series.values:
                follows = last is not None and time - last.end <= self._step * 1.01
                if last is not None and follows and (value == last.value or not keep_values):
                    last.end = time
                else:
                    last = Stretch(time, time, value)
                    stretches.append(last)

    def merge(self, other: Stretches) -> None:
        """Add what another expression returned; where both have a series, one value is kept."""
        for key, stretches in other.series.items():
            if key in self.series:
                stretches = _united([*self.series[key], *stretches], self._step)
            self.series[key] = stretches


def _united(stretches: list[Stretch], step: float) -> list[Stretch]:
    found: list[Stretch] = []
    for stretch in sorted(stretches, key=lambda one: one.start):
        if found and stretch.start <= found[-1].end + step * 1.01:
            found[-1].end = max(found[-1].end, stretch.end)
        else:
            found.append(stretch)
    return found
