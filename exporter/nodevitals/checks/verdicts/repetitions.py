"""Repeats what would be a finding: one odd test on a busy machine must not name anybody.

In: a request, results, and which runs are odd. Out: the runs to repeat; the results with the better
one of each test.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from typing import Any

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


def to_repeat(
    planned: int, runs: Sequence[RunResult], odd: Collection[int]
) -> list[tuple[int, tuple[str, ...]]]:
    """Numbers and nodes of the next repetitions of the odd planned runs. They run one after the
    other: pairs of one round may share a path. The repetitions of run `n` have the numbers
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
    return [((times[number] + 1) * planned + number, nodes[number]) for number in again]


def merged(
    request: CheckRequest, planned: int, runs: Sequence[RunResult]
) -> tuple[list[RunResult], set[int]]:
    """The planned runs, each with the better report of each test, and the numbers of those that
    were repeated.
    """
    known = {run.number: run for run in runs if run.number < planned}
    repeated: set[int] = set()
    for run in runs:
        first = known.get(run.number % planned) if run.number >= planned else None
        if first is not None and first.nodes == run.nodes:
            known[first.number] = _better(request, first, run)
            repeated.add(first.number)
    return [known[number] for number in sorted(known)], repeated


def _better(request: CheckRequest, first: RunResult, second: RunResult) -> RunResult:
    if first.skipped or len(first.reports) < len(second.reports):
        return replace(second, number=first.number)
    chosen: dict[str, list[Any]] = {name: list(getattr(first, name)) for name in PER_TEST}
    for place, test in enumerate(_tests(request)):
        if place < len(second.reports) and _speed(second, test, place) > _speed(first, test, place):
            for name, values in chosen.items():
                values[place : place + 1] = getattr(second, name)[place : place + 1]
    return replace(first, **{name: tuple(values) for name, values in chosen.items()})


def _tests(request: CheckRequest) -> list[TestRequest]:
    return [
        request_of(request, series).test for series in series_of(request.test) for _ in series.sizes
    ]


def _speed(run: RunResult, test: TestRequest, place: int) -> float:
    figure = figures.figure_of(run.reports[place], test)
    return 0.0 if figure is None else figures.speed_of(figure, test)
