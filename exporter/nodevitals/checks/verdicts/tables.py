"""The results of a check as tables for a terminal, and as CSV.

In: a check with its results. Out: rows of texts.
"""

from __future__ import annotations

import csv
import io
import statistics
from collections.abc import Iterator, Sequence
from typing import Any, Optional

from nodevitals.checks.model import CheckDetail, CheckRequest, RunResult
from nodevitals.checks.requests.devices import natural
from nodevitals.checks.requests.runs import (
    Series,
    pair_tests,
    request_of,
    results_of,
    series_of,
    words_of,
)
from nodevitals.checks.verdicts import figures
from nodevitals.checks.verdicts.repetitions import merged
from nodevitals.probes.fabric.tools.report import LATENCY

COLUMNS = (
    *("run", "nodes", "device", "peer_device", "operation", "message_bytes", "iterations"),
    *("bandwidth_bytes_per_second", "bus_bandwidth_bytes_per_second"),
    *("latency_median_seconds", "latency_p99_seconds"),
    *("outcome", "reason", "message", "skipped", "started", "seconds", "commands"),
)
_FIGURES = 4
Table = Sequence[Sequence[str]]


def tables(detail: CheckDetail) -> Iterator[Table]:
    """The tables of a check of pairs, the head of each first: with one series the matrix of its
    pairs, otherwise for each operation a line per node.
    """
    request = detail.check.request
    runs, _ = merged(request, detail.check.cost.runs, figures.in_order(detail.results))
    names = sorted({name for run in runs for name in run.nodes}, key=natural)
    series = series_of(request.test)
    if len(series) == 1:
        yield _matrix(request_of(request, series[0]), runs, names)
        return
    for operation in words_of(request.test.operation):
        own = [each for each in series if each.operation == operation]
        yield _by_node(request, own, runs, names)


def _matrix(request: CheckRequest, runs: Sequence[RunResult], names: Sequence[str]) -> Table:
    """Rows are the nodes that the test was started on, columns their partners."""
    cells = {run.nodes: _cell(request, run) for run in runs}
    head = [_unit(request), *names]
    return [
        head,
        *(
            [row, *("-" if row == column else cells.get((row, column), "") for column in names)]
            for row in names
        ),
    ]


def _by_node(
    request: CheckRequest, series: Sequence[Series], runs: Sequence[RunResult], names: Sequence[str]
) -> Table:
    """For each node and device the median over its partners; `-` where there is none."""
    columns: list[dict[str, str]] = []
    for each in series:
        own = request_of(request, each)
        known: dict[str, list[float]] = {}
        for run in results_of(runs, each):
            figure = _figure(own, run)
            for name in run.nodes if figure is not None else ():
                known.setdefault(name, []).append(figure or 0.0)
        columns.append(
            {name: _shown(own, statistics.median(values)) for name, values in known.items()}
        )
    unit = _unit(request_of(request, series[0]))
    head = [f"{series[0].operation} {unit}", *(each.devices for each in series)]
    return [head, *([name, *(column.get(name, "-") for column in columns)] for name in names)]


def _unit(request: CheckRequest) -> str:
    return "us" if request.test.operation in LATENCY else "Gb/s"


def _figure(request: CheckRequest, run: RunResult) -> Optional[float]:
    return figures.at_size(run, request.test, figures.largest(request.test))


def _shown(request: CheckRequest, figure: float) -> str:
    latency = request.test.operation in LATENCY
    return f"{figure * 1e6:.2f}" if latency else f"{figure * 8 / 1e9:.2f}"


def _cell(request: CheckRequest, run: RunResult) -> str:
    figure = _figure(request, run)
    if figure is not None:
        return _shown(request, figure)
    if run.skipped or not run.reports:
        return run.skipped or "no result"
    return str(run.reports[-1].reason or "no result")


def cell(text: str) -> str:
    """The text in a form that no spreadsheet reads as a formula."""
    return f"'{text}" if text[:1] in ("=", "+", "-", "@", "\t", "\r") else text


def as_csv(detail: CheckDetail) -> str:
    """A line per run, device, operation and size."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(COLUMNS)
    writer.writerows(_lines(detail))
    return text.getvalue()


def _lines(detail: CheckDetail) -> Iterator[list[Any]]:
    request = detail.check.request
    for run in detail.results:
        tests = pair_tests(request, run.series) if request.kind in ("pair", "matrix") else ()
        head = [run.number, " ".join(run.nodes)]
        tail = [cell(run.skipped), run.started, run.seconds]
        if not run.reports:
            yield [*head, *[""] * (len(COLUMNS) - len(head) - len(tail) - 1), *tail, ""]
        for place, report in enumerate(run.reports):
            test = tests[place] if place < len(tests) else None
            devices = [test.device, test.peer_device or test.device] if test else ["", ""]
            operation = test.operation if test else ""
            command = cell("".join(run.commands[place : place + 1]))
            ending = [report.outcome, report.reason or "", cell(report.message), *tail, command]
            if not report.rows:
                size = test.message_bytes if test else ""
                yield [*head, *devices, operation, size, "", *[""] * _FIGURES, *ending]
            for row in report.rows:
                latency = row.latency_seconds or {}
                known = [
                    *(cell(row.operation or operation), row.message_bytes, row.iterations),
                    *(row.bandwidth_bytes_per_second, row.bus_bandwidth_bytes_per_second),
                    *(latency.get("median"), latency.get("p99")),
                ]
                yield [*head, *devices, *known, *ending]
