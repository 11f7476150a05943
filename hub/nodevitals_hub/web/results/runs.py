"""Each test of a check: a row of a table, its command lines, and what they printed.

In: the result of a test. Out: rows and texts, as a person reads and copies them.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence
from heapq import nsmallest
from itertools import islice, zip_longest
from typing import NamedTuple

from nodevitals.checks.model import CheckDetail, CheckRequest, RunResult
from nodevitals.checks.requests.runs import Series, request_of, results_of, series_of
from nodevitals.checks.verdicts import figures
from nodevitals.probes.fabric.tools.report import LATENCY, ResultRow

MAX_COMMANDS = 3
"""Number of tests whose command lines are on the check's own page."""
MAX_COMMAND_CHARACTERS = 4000
_PROBLEM_CHARACTERS = 300


class RunRow(NamedTuple):
    """A test."""

    number: int
    nodes: tuple[str, ...]
    figure: float | None
    """At the largest size, of one operation and device."""
    problem: str
    """Why there is no figure; of several operations and devices, of the first without one."""
    name: str = ""
    """Operation and device of the figure, where there are several."""
    latency: bool = False


class Part(NamedTuple):
    """The command lines of one operation, device and size, below the name of the node on which each
    ran, and what they printed; '' where it is not known.
    """

    command: str
    output: str


def run_row(run: RunResult, detail: CheckDetail, shown: Series | None = None) -> RunRow:
    """The row of a test with the figure of one operation and device, by default of the first."""
    request = detail.check.request
    every = series_of(request.test, run.series)
    shown = shown or every[0]
    problem = ""
    for series in every:
        failure = figures.failure_of(*_part(run, request, series))
        if failure and not problem:
            problem = f"{series.name}: {failure.text}" if series.first else failure.text
    return RunRow(
        run.number,
        run.nodes,
        _figure(run, request, shown),
        problem[:_PROBLEM_CHARACTERS],
        shown.name if len(every) > 1 else "",
        shown.operation in LATENCY,
    )


def slowest(
    runs: Sequence[RunResult], request: CheckRequest, most: int
) -> list[tuple[RunResult, Series]]:
    """The failed tests, then the slowest, each with its operation and device that is the slowest
    relative to the median of all tests.
    """
    worst: dict[int, tuple[float, Series]] = {}
    for series in series_of(request.test):
        own = request_of(request, series) if series.sizes else request
        known = [_figure(run, request, series) for run in runs]
        speeds = [None if one is None else figures.speed_of(one, own.test) for one in known]
        usual = statistics.median([speed for speed in speeds if speed is not None] or [1.0])
        for place, speed in enumerate(speeds):
            share = -1.0 if speed is None else speed / usual
            if place not in worst or share < worst[place][0]:
                worst[place] = share, series
    places = nsmallest(most, worst, key=lambda place: (worst[place][0], place))
    return [(runs[place], worst[place][1]) for place in places]


def _part(run: RunResult, request: CheckRequest, series: Series) -> tuple[RunResult, CheckRequest]:
    """The result and the request of one operation and device alone."""
    if not series.sizes:
        return run, request
    [part] = results_of([run], series)
    return part, request_of(request, series)


def _figure(run: RunResult, request: CheckRequest, series: Series) -> float | None:
    if not series.sizes:
        return None
    part, own = _part(run, request, series)
    return figures.at_size(part, own.test, len(series.sizes) - 1)


class Line(NamedTuple):
    """One row of a test's results; without a row, why there is none."""

    operation: str
    devices: str
    message_bytes: int | None
    row: ResultRow | None
    problem: str


def lines_of(run: RunResult, request: CheckRequest) -> Iterator[Line]:
    """The rows of all reports, in the order of the tests."""
    series = series_of(request.test, run.series) if request.kind in ("pair", "matrix") else ()
    tests = [(each, size) for each in series for size in each.sizes]
    for place, report in enumerate(run.reports):
        each, size = tests[place] if place < len(tests) else (None, None)
        devices = each.devices if each else ""
        operation = each.operation if each else request.test.operation
        problem = f"{report.reason or ''}: {report.message}".strip(": ")[:_PROBLEM_CHARACTERS]
        for row in report.rows:
            own = row.operation or operation
            yield Line(own, devices, row.message_bytes, row, "")
        if report.outcome != "ok":
            yield Line(operation, devices, size, None, problem)


def parts_of(run: RunResult) -> tuple[Part, ...]:
    """The command lines and outputs of a test."""
    pairs = zip_longest(run.commands, run.outputs, fillvalue="")
    return tuple(Part(*pair) for pair in pairs if any(pair))


def commands_of_first(
    found: Sequence[tuple[RunResult, Series]], detail: CheckDetail
) -> tuple[tuple[RunRow, str], ...]:
    """Command lines of the first tests that have some: of their slowest operation and device."""
    texts = (
        (run, series, _commands(run, series, detail.check.request.kind)) for run, series in found
    )
    rows = (
        (run_row(run, detail, series), text[:MAX_COMMAND_CHARACTERS])
        for run, series, text in texts
        if text
    )
    return tuple(islice(rows, MAX_COMMANDS))


def _commands(run: RunResult, series: Series, kind: str) -> str:
    own = slice(series.first, series.first + len(series.sizes))
    commands = run.commands[own] if kind in ("pair", "matrix") else run.commands
    return "\n".join(filter(None, commands))


def text_of(run: RunResult) -> str:
    """The command lines and outputs of a test as one text."""
    return "".join(f"{line}\n" for line in _lines(run))


def _lines(run: RunResult) -> Iterator[str]:
    for part in parts_of(run):
        yield from (text.rstrip("\n") for text in part if text)
        yield ""
