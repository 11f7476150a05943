"""The figures of results: one per run and size, or the reason why there is none.

In: results of runs. Out: bytes per second (for collectives of the bus), or the median of a latency
test in seconds; speeds (larger is better); failures with their reasons.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence
from typing import Optional

import msgspec

from nodevitals.checks.model import CheckRequest, Reason, RunResult, TestRequest
from nodevitals.checks.requests.sizes import parse_sizes
from nodevitals.checks.verdicts.reasons import reason_of
from nodevitals.probes.fabric.tools.report import LATENCY, NOT_TESTED, Report, failed

# Bounds of a plausible figure, in seconds or bytes per second: ratios and sums stay finite.
_LEAST, _MOST = 1e-12, 1e18
_WORKLOAD = ("maintenance", "job_marker", "accelerator_in_use", "link_busy", "in_use")


class Failure(msgspec.Struct, frozen=True):
    """A run without a figure of its largest size."""

    nodes: tuple[str, ...]
    cause: Reason
    reason: str
    message: str
    relative: bool = False
    """Whether it is a fault of the hardware where the other node's other tests succeed."""

    @property
    def text(self) -> str:
        """The failure as one text for people."""
        return f"{self.reason}: {self.message}" if self.message else self.reason


def in_order(results: Iterable[RunResult]) -> list[RunResult]:
    """The results by number, each number once: the one with the most reports."""
    best: dict[int, RunResult] = {}
    for result in results:
        other = best.get(result.number)
        if other is None or _weight(result) > _weight(other):
            best[result.number] = result
    return [best[number] for number in sorted(best)]


def _weight(result: RunResult) -> tuple[int, bytes]:
    return (len(result.reports), msgspec.json.encode(result))


def figure_of(report: Report, test: TestRequest) -> Optional[float]:
    """The figure of a report; None where it has no plausible one."""
    if report.outcome != "ok" or not report.rows:
        return None
    row = report.rows[-1]
    if test.operation in LATENCY:
        value = (row.latency_seconds or {}).get("median")
    elif test.tool in ("nccl", "hccl"):
        value = row.bus_bandwidth_bytes_per_second
    else:
        value = row.bandwidth_bytes_per_second
    return value if value is not None and _LEAST <= value <= _MOST else None


def speed_of(figure: float, test: TestRequest) -> float:
    """The speed of a figure (larger is better): for a latency its inverse."""
    return 1 / figure if test.operation in LATENCY else figure


def at_size(result: RunResult, test: TestRequest, place: int) -> Optional[float]:
    """The figure of a run at the size with this index in `sizes`."""
    if result.skipped or place >= len(result.reports):
        return None
    return figure_of(result.reports[place], test)


def ports_at(result: RunResult, place: int) -> tuple[float, ...]:
    """The rates of both ports of a run at the size with this index; none where they are unknown."""
    known = result.ports_bytes_per_second
    return (known[place] if place < len(known) else None) or ()


def limits_at(result: RunResult, place: int) -> tuple[str, ...]:
    """What keeps both ports of a run from their rates, in the same way."""
    return result.port_limits[place] if place < len(result.port_limits) else ()


def largest(test: TestRequest) -> int:
    """The index of the largest size."""
    return len(parse_sizes(test.sizes)) - 1


def median_of(request: CheckRequest, results: Iterable[RunResult]) -> Optional[float]:
    """The median of all runs at the largest size; for a collective, the figure of all nodes."""
    if request.kind == "node":
        return None
    place = largest(request.test)
    runs = in_order(results)
    if request.kind == "collective":
        runs = of_all_nodes(request, runs)[:1]
    figures = [at_size(run, request.test, place) for run in runs]
    known = sorted(figure for figure in figures if figure is not None)
    return statistics.median(known) if known else None


def of_all_nodes(request: CheckRequest, runs: Iterable[RunResult]) -> list[RunResult]:
    """The runs of a collective over all nodes, the fastest first: a second one is a repetition."""
    test, nodes = request.test, set(request.nodes)
    whole = [run for run in runs if set(run.nodes) == nodes]
    return sorted(whole, key=lambda run: -(at_size(run, test, largest(test)) or 0.0))


def failure_of(result: RunResult, request: CheckRequest) -> Optional[Failure]:
    """Why a run has no figure at its largest size; None where it has one."""
    if result.skipped:
        cause: Reason = "workload" if result.skipped in _WORKLOAD else "harness"
        return Failure(result.nodes, cause, result.skipped, "")
    test = request.test
    if request.kind == "node":
        bad: Sequence[Report] = [report for report in result.reports if report.outcome != "ok"]
        if result.reports and not bad:
            return None
    else:
        if at_size(result, test, largest(test)) is not None:
            return None
        tested = (report for report in result.reports if report.message != NOT_TESTED)
        bad = [report for report in tested if figure_of(report, test) is None]
    report = bad[-1] if bad else failed("harness", "it ended without a result")
    if report.outcome == "ok":
        report = failed("harness", "the result has no figure that makes sense")
    reason = report.reason or "harness"
    # A GID that the request names may not exist on a healthy port.
    relative = reason == "no_gid" and test.gid_index is None
    return Failure(result.nodes, reason_of(report) or "harness", reason, report.message, relative)
