"""Compares speeds with a reference. Without one, a check without findings proves nothing: nodes
that are all slow agree with each other (docs/adr/0035-verdicts.md).

In: the request of one series, results, the figure of the last equal check. Out: runs that are far
below what their port can do, and one line about what is missing for a verdict.

| reference | well | bad |
|---|---|---|
| the expected rate or latency | from `share` on | below |
| the last equal check, if it was ok | from `share` on | below |
| the last equal check, if it had no reference | never | below `share` |
| the rate of two equal physical ports | from GOOD_SHARE on | below BAD_SHARE |
| the usual latency of their link layer | up to the first of LATENCIES | from the second one on |

By the last two, a run is bad only where nothing is expected: a rate with messages from 1 MiB on.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple, Optional

from nodevitals.checks.model import BusExpectation, CheckRequest, RunResult
from nodevitals.checks.requests.runs import Series
from nodevitals.checks.requests.sizes import parse_sizes
from nodevitals.checks.verdicts import figures
from nodevitals.checks.verdicts.findings import percent
from nodevitals.probes.fabric.measurement import LARGE_BYTES
from nodevitals.probes.fabric.tools.report import LATENCY

# Published limits of healthy links are 0.9 of the line rate
# (https://github.com/Mellanox/ngc_multinode_perf); in a routed network, flows may share a link.
GOOD_SHARE = 0.8
BAD_SHARE = 0.25
"""No number of queue pairs, size of messages from 1 MiB on or other traffic of one flow explains
less."""
FASTEST_PROCESS = 5e9
"""Rate of a port in bytes per second that one process of iperf3 can be expected to fill to a
quarter: above 40 Gb/s it is the bottleneck itself (https://access.redhat.com/solutions/4486291)."""
LATENCIES = {"InfiniBand": (5e-6, 15e-6), "Ethernet": (10e-6, 30e-6)}
"""Seconds that a short message takes at most on a healthy link, and at least on a bad one."""
SHORT_BYTES = 64
HOW = "give --expected (expected_bytes_per_second)"
HOW_LATENCY = "give --expected-latency (expected_latency_seconds)"


class Past(NamedTuple):
    """References that the request does not give."""

    baseline: Optional[float] = None
    """The figure of the last equal check: bytes per second, or seconds of a latency."""
    baseline_ok: bool = True
    """Whether that check had a reference itself."""
    baselines: Mapping[str, float] = MappingProxyType({})
    """Of several series, `baseline` by the name of the series."""
    bus: Optional[BusExpectation] = None
    """What a collective should reach."""

    def of(self, series: Series) -> Past:
        """The past of one series."""
        first = None if series.first else self.baseline
        return self._replace(baseline=self.baselines.get(series.name, first))


NO_PAST = Past()


def expected_speed(request: CheckRequest) -> Optional[float]:
    """The speed (larger is better) that the request expects."""
    if request.test.operation in LATENCY:
        seconds = request.expected_latency_seconds
        return None if seconds is None else figures.speed_of(seconds, request.test)
    return request.expected_bytes_per_second


def lacking(request: CheckRequest, runs: Sequence[RunResult], past: Past) -> str:
    """Which reference is missing to call runs without a fault ok, and what they reached; '' where
    there is one. The runs are not below `share` of the expected rate or the baseline.
    """
    if request.kind == "node" or expected_speed(request):
        return ""
    measured = [run for run in runs if _figure(request, run) is not None]
    # Without any run, no reference is missing.
    if (past.baseline is not None and past.baseline_ok) or all(
        _is_well(request, run) for run in measured
    ):
        return ""
    worst = min(measured, key=lambda run: (_share(request, run) or 0.0, _speed(request, run)))
    subject = _subject(worst, len({frozenset(run.nodes) for run in measured}))
    latency = request.test.operation in LATENCY
    text = f"{subject} reached {reached(request, worst)}; no reference: "
    text += HOW_LATENCY if latency else HOW
    if _ports(request, worst) and not latency and not _is_large(request):
        text += ", or test with --sizes 1MiB"
    figure = figures.median_of(request, measured)
    if past.baseline and figure:
        last = figures.speed_of(past.baseline, request.test)
        ratio = figures.speed_of(figure, request.test) / last
        text += f"; {percent(ratio)} of the last like check, which had none either"
    return text


def _is_well(request: CheckRequest, run: RunResult) -> bool:
    """Whether the run reached most of the rate of its ports, or a usual latency. Where the rates of
    the ports differ, one of them may have come up too slow.
    """
    limits = _latencies(request, run)
    if limits is not None:
        return (_figure(request, run) or 0.0) <= limits[0]
    alike = len(set(_ports(request, run))) == 1
    return alike and (_share(request, run) or 0.0) >= GOOD_SHARE


def is_far_below(request: CheckRequest, run: RunResult) -> bool:
    """Whether a run is slower than anything but a fault explains."""
    if request.kind not in ("pair", "matrix") or expected_speed(request):
        return False
    limits = _latencies(request, run)
    if limits is not None:
        return (_figure(request, run) or 0.0) >= limits[1]
    share = _share(request, run)
    if share is None or not _is_large(request):
        return False
    if request.test.tool == "iperf3" and min(_ports(request, run)) > FASTEST_PROCESS:
        return False
    return share < BAD_SHARE


def _is_large(request: CheckRequest) -> bool:
    """Whether the messages fill a link; those of TCP need not be large."""
    return request.test.tool == "iperf3" or _size(request) >= LARGE_BYTES


def _latencies(request: CheckRequest, run: RunResult) -> Optional[tuple[float, float]]:
    """The limits for a latency between physical ports with a known link layer. A read waits for its
    answer: twice the way.
    """
    if request.test.operation not in LATENCY or _size(request) > SHORT_BYTES:
        return None
    report = run.reports[-1] if run.reports else None
    layer = report.rows[-1].link_layer if report is not None and report.rows else None
    limits = LATENCIES.get(layer or "") if _ports(request, run) else None
    ways = 2 if request.test.operation == "read_lat" else 1
    return None if limits is None else (ways * limits[0], ways * limits[1])


def _share(request: CheckRequest, run: RunResult) -> Optional[float]:
    """The figure as a share of the rate of the slower port; None where either is unknown."""
    figure = _figure(request, run)
    ports = _ports(request, run)
    if figure is None or not ports or request.test.operation in LATENCY:
        return None
    return figure / min(ports)


def _figure(request: CheckRequest, run: RunResult) -> Optional[float]:
    return figures.at_size(run, request.test, figures.largest(request.test))


def _ports(request: CheckRequest, run: RunResult) -> tuple[float, ...]:
    return figures.ports_at(run, figures.largest(request.test))


def _speed(request: CheckRequest, run: RunResult) -> float:
    figure = _figure(request, run)
    return figures.speed_of(figure, request.test) if figure else 0.0


def _size(request: CheckRequest) -> int:
    return parse_sizes(request.test.sizes)[-1]


def reached(request: CheckRequest, run: RunResult) -> str:
    """The speed for people: `4.9 of 200 Gb/s, 2 %`."""
    figure = _figure(request, run) or 0.0
    if request.test.operation in LATENCY:
        return f"a latency of {figure * 1e6:.3g} us"
    share, ports = _share(request, run), sorted(set(_ports(request, run)))
    if share is None:
        return f"{_gigabits(figure)} Gb/s"
    text = f"{_gigabits(figure)} of {_gigabits(ports[0])} Gb/s, {percent(share)}"
    return text if len(ports) == 1 else f"{text} (the other port has {_gigabits(ports[-1])})"


def _gigabits(rate: float) -> str:
    return f"{rate * 8 / 1e9:.3g}"


def _name(run: RunResult) -> str:
    return " - ".join(run.nodes[:2])


def _subject(run: RunResult, count: int) -> str:
    return f"the slowest pair, {_name(run)}," if count > 1 else _name(run)
