"""Each test of a check: a row of a table, its command lines, and what they printed.

In: the result of a test. Out: rows and texts, as a person reads and copies them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice, zip_longest
from typing import NamedTuple

from nodevitals.checks.model import CheckDetail, CheckRequest, RunResult
from nodevitals.checks.requests.runs import request_of, results_of, series_of
from nodevitals.checks.verdicts import figures
from nodevitals.probes.fabric.tools.report import ResultRow

MAX_COMMANDS = 3
"""Number of tests whose command lines are on the check's own page."""
MAX_COMMAND_CHARACTERS = 4000
_PROBLEM_CHARACTERS = 300


class RunRow(NamedTuple):
    """A test."""

    number: int
    nodes: tuple[str, ...]
    figure: float | None
    """At the largest size; of several operations and devices, of the first."""
    problem: str
    """Why there is no figure; of several operations and devices, of the first without one."""


class Part(NamedTuple):
    """The command lines of one operation, device and size, below the name of the node on which each
    ran, and what they printed; '' where it is not known.
    """

    command: str
    output: str


def run_row(run: RunResult, detail: CheckDetail) -> RunRow:
    """The row of a test."""
    request = detail.check.request
    figure, problem = None, ""
    for series in series_of(request.test):
        own = request_of(request, series) if series.sizes else request
        [part] = results_of([run], series) if series.sizes else [run]
        failure = figures.failure_of(part, own)
        if failure and not problem:
            problem = f"{series.name}: {failure.text}" if series.first else failure.text
        if series.sizes and not series.first:
            figure = figures.at_size(part, own.test, figures.largest(own.test))
    return RunRow(run.number, run.nodes, figure, problem[:_PROBLEM_CHARACTERS])


class Line(NamedTuple):
    """One row of a test's results; without a row, why there is none."""

    operation: str
    devices: str
    message_bytes: int | None
    row: ResultRow | None
    problem: str


def lines_of(run: RunResult, request: CheckRequest) -> Iterator[Line]:
    """The rows of all reports, in the order of the tests."""
    series = series_of(request.test) if request.kind in ("pair", "matrix") else ()
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
    runs: Sequence[RunResult], detail: CheckDetail
) -> tuple[tuple[RunRow, str], ...]:
    """The command lines of the first tests that have some."""
    texts = ((run, "\n".join(filter(None, run.commands))) for run in runs)
    rows = ((run_row(run, detail), text[:MAX_COMMAND_CHARACTERS]) for run, text in texts if text)
    return tuple(islice(rows, MAX_COMMANDS))


def text_of(run: RunResult) -> str:
    """The command lines and outputs of a test as one text."""
    return "".join(f"{line}\n" for line in _lines(run))


def _lines(run: RunResult) -> Iterator[str]:
    for part in parts_of(run):
        yield from (text.rstrip("\n") for text in part if text)
        yield ""
