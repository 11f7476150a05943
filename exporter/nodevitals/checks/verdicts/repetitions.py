"""Repeats what would be a finding: one odd test on a busy machine must not name anybody.

In: a request, results, and which runs are odd. Out: the runs to repeat; the results with the better
one of each test.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from typing import Any, NamedTuple

from msgspec.structs import replace

from nodevitals.checks.model import CheckRequest, RunResult, TestRequest
from nodevitals.checks.requests.runs import request_of, series_of
from nodevitals.checks.verdicts import figures

REPETITIONS = 2
FEW = 4
"""Of more runs, one repetition is enough where all of them are odd again."""
MAX_REPEATED = 32
"""Of more runs in a check, an even selection is repeated."""


PER_TEST = ("reports", "commands", "outputs", "ports_bytes_per_second", "port_limits")


class Repetition(NamedTuple):
    """A run that is repeated: of its series, those that were odd."""

    number: int
    nodes: tuple[str, ...]
    series: tuple[str, ...]


def to_repeat(
    planned: int, runs: Sequence[RunResult], odd: Mapping[int, Collection[str]]
) -> list[Repetition]:
    """The next repetitions of the odd planned runs, which have names of series. They run one after
    the other: pairs of one round may share a path. The repetitions of run `n` have the numbers
    `planned + n`, `2 * planned + n`.
    """
    nodes = {run.number: run.nodes for run in runs}
    times = Counter(run.number % planned for run in runs if run.number >= planned)
    again = [number for number in sorted(odd) if 0 < times[number] < REPETITIONS]
    if len(again) > FEW and len(again) == len(times):
        return []  # all were odd again
    new = [number for number in sorted(odd) if not times[number]]
    left = MAX_REPEATED - len(times)
    if left > 0:
        again += new[:: -(-len(new) // left) or 1]
    return [
        Repetition((times[number] + 1) * planned + number, nodes[number], tuple(odd[number]))
        for number in again
    ]


def merged(
    request: CheckRequest, planned: int, runs: Sequence[RunResult]
) -> tuple[list[RunResult], set[tuple[int, str]]]:
    """The planned runs, each with the better report of each test; and the numbers of those that
    were repeated, each with the names of the series.
    """
    known = {run.number: run for run in runs if run.number < planned}
    repeated: set[tuple[int, str]] = set()
    for run in runs:
        first = known.get(run.number % planned) if run.number >= planned else None
        if first is not None and first.nodes == run.nodes:
            known[first.number] = _better(request, first, run)
            again = run.series or [series.name for series in series_of(request.test)]
            repeated |= {(first.number, name) for name in again}
    return [known[number] for number in sorted(known)], repeated


def _better(request: CheckRequest, first: RunResult, second: RunResult) -> RunResult:
    if not second.series and (first.skipped or len(first.reports) < len(second.reports)):
        return replace(second, number=first.number)
    chosen: dict[str, list[Any]] = {name: list(getattr(first, name)) for name in PER_TEST}
    places = {series.name: series.first for series in series_of(request.test)}
    for series in series_of(request.test, second.series):
        test = request_of(request, series).test
        for size in range(len(series.sizes)):
            place, again = places[series.name] + size, series.first + size
            if _speed(second, test, again) > _speed(first, test, place):
                for name, values in chosen.items():
                    values[place : place + 1] = getattr(second, name)[again : again + 1]
    return replace(first, **{name: tuple(values) for name, values in chosen.items()})


def _speed(run: RunResult, test: TestRequest, place: int) -> float:
    """The speed of one report; 0 where there is none."""
    figure = figures.figure_of(run.reports[place], test) if place < len(run.reports) else None
    return 0.0 if figure is None else figures.speed_of(figure, test)
