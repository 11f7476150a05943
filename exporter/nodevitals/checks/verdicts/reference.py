"""Compares speeds with a reference. Without one, a check without findings proves nothing: nodes
that are all slow agree with each other (docs/adr/0035-verdicts.md).

In: the request, results, the figure of the last equal check. Out: the runs to repeat, the runs far
below the rate of their port, and one line about what is missing for a verdict.

| reference | well | bad |
|---|---|---|
| the expected rate | from `share` on | below |
| the last equal check, if it was ok | from `share` on | below |
| the last equal check, if it had no reference | never | below `share` |
| the rate of two equal physical ports | from GOOD_SHARE on | below BAD_SHARE |

By the last reference, a run is bad only where no rate is expected, with messages from 1 MiB on, and
where it was bad twice.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Optional

from nodevitals.checks.model import CheckRequest, RunResult
from nodevitals.checks.requests.sizes import parse_sizes
from nodevitals.checks.verdicts import figures
from nodevitals.checks.verdicts.figures import Failure
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
MAX_REPEATED = 32
SHOWN = 3
HOW = "give --expected (expected_bytes_per_second)"


class Settled(NamedTuple):
    """The planned results, sorted by what their repetitions show."""

    runs: list[RunResult]
    """The planned runs."""
    others: list[RunResult]
    """Those of them that no repetition has settled, to be compared with each other."""
    slow: list[Failure]
    """Runs far below the rate of their port, twice."""
    doubts: list[str]


def to_repeat(
    request: CheckRequest, planned: int, results: Sequence[RunResult]
) -> list[tuple[int, tuple[str, ...]]]:
    """Numbers and nodes of the repetitions that a verdict needs. They run one after the other:
    pairs of one round may share a path. Runs far below the rate of their port are repeated, of many
    an even selection; the repetition of run `n` has the number `planned + n`.
    """
    far = [run for run in figures.in_order(results) if _is_planned_and_far(request, planned, run)]
    return [(planned + run.number, run.nodes) for run in far[:: -(-len(far) // MAX_REPEATED) or 1]]


def settled(request: CheckRequest, planned: int, runs: Sequence[RunResult]) -> Settled:
    """The planned runs, sorted by their repetitions: one figure is not enough to name a fault.
    Where all repetitions confirm it, far runs that were not repeated are slow as well.
    """
    first = {run.number: run.nodes for run in runs if run.number < planned}
    again = {
        run.number - planned: run for run in runs if first.get(run.number - planned) == run.nodes
    }
    wanted = [number - planned for number, _ in to_repeat(request, planned, runs)]
    sure = all(number in again and _is_far_below(request, again[number]) for number in wanted)
    outcome = Settled([], [], [], [])
    for run in runs:
        if again.get(run.number - planned) is run:
            continue
        outcome.runs.append(run)
        if not _is_planned_and_far(request, planned, run):
            outcome.others.append(run)
            continue
        second, text = again.get(run.number), f"reached {_reached(request, run)}, "
        if second is not None and _is_far_below(request, second):
            outcome.slow.append(_slow(run, f"{text}also when it was repeated"))
        elif second is not None and _figure(request, second) is not None:
            better = f"and {_reached(request, second)} when it was repeated"
            outcome.doubts.append(f"{_name(run)} {text}{better}")
        elif sure:
            outcome.slow.append(_slow(run, f"{text}as did others, also when they were repeated"))
        else:
            outcome.others.append(run)
            outcome.doubts.append(f"{_name(run)} {text}and was not repeated")
    if len(outcome.doubts) > SHOWN:
        outcome.doubts[SHOWN:] = [f"{len(outcome.doubts) - SHOWN} more pairs like these"]
    return outcome


def _slow(run: RunResult, text: str) -> Failure:
    return Failure(run.nodes, "hardware", "slow", text)


def _is_planned_and_far(request: CheckRequest, planned: int, run: RunResult) -> bool:
    return run.number < planned and _is_far_below(request, run)


def lacking(
    request: CheckRequest,
    runs: Sequence[RunResult],
    baseline: Optional[float] = None,
    baseline_ok: bool = True,
) -> str:
    """Which reference is missing to call runs without a fault ok, and what they reached; '' where
    there is one. The runs are not below `share` of the expected rate or the baseline.
    """
    if request.kind == "node" or request.expected_bytes_per_second:
        return ""
    measured = [run for run in runs if _figure(request, run) is not None]
    # Without any run, no reference is missing.
    if (baseline is not None and baseline_ok) or all(_is_well(request, run) for run in measured):
        return ""
    worst = min(measured, key=lambda run: (_share(request, run) or 0.0, _speed(request, run)))
    subject = _subject(request, worst, len(measured))
    text = f"{subject} reached {_reached(request, worst)}; no reference: "
    if request.test.operation in LATENCY:
        text += "nodes are compared with each other, and a latency has no expected value"
    else:
        text += HOW
    if worst.port_bytes_per_second and _size(request) < LARGE_BYTES:
        text += ", or test with --sizes 1MiB"
    figure = figures.median_of(request, measured)
    if baseline and figure:
        ratio = figures.speed_of(figure, request.test) / figures.speed_of(baseline, request.test)
        text += f"; {percent(ratio)} of the last like check, which had none either"
    return text


def _is_well(request: CheckRequest, run: RunResult) -> bool:
    """Whether the run reached most of the rate of its ports. Where their rates differ, one port may
    have come up too slow.
    """
    alike = len(set(run.port_bytes_per_second)) == 1
    return alike and (_share(request, run) or 0.0) >= GOOD_SHARE


def _is_far_below(request: CheckRequest, run: RunResult) -> bool:
    if request.kind not in ("pair", "matrix") or request.expected_bytes_per_second:
        return False
    share = _share(request, run)
    if share is None or _size(request) < LARGE_BYTES:
        return False
    if request.test.tool == "iperf3" and min(run.port_bytes_per_second) > FASTEST_PROCESS:
        return False
    return share < BAD_SHARE


def _share(request: CheckRequest, run: RunResult) -> Optional[float]:
    """The figure as a share of the rate of the slower port; None where either is unknown."""
    figure = _figure(request, run)
    ports = run.port_bytes_per_second
    if figure is None or not ports or request.test.operation in LATENCY:
        return None
    return figure / min(ports)


def _figure(request: CheckRequest, run: RunResult) -> Optional[float]:
    return figures.at_size(run, request.test, figures.largest(request.test))


def _speed(request: CheckRequest, run: RunResult) -> float:
    figure = _figure(request, run)
    return figures.speed_of(figure, request.test) if figure else 0.0


def _size(request: CheckRequest) -> int:
    return parse_sizes(request.test.sizes)[-1]


def _reached(request: CheckRequest, run: RunResult) -> str:
    """The speed for people: `4.9 of 200 Gb/s, 2 %`."""
    figure = _figure(request, run) or 0.0
    if request.kind == "collective":
        return f"{figure / 1e9:.3g} GB/s on its bus"
    if request.test.operation in LATENCY:
        return f"a latency of {figure * 1e6:.3g} us"
    share, ports = _share(request, run), sorted(set(run.port_bytes_per_second))
    if share is None:
        return f"{_gigabits(figure)} Gb/s"
    text = f"{_gigabits(figure)} of {_gigabits(ports[0])} Gb/s, {percent(share)}"
    return text if len(ports) == 1 else f"{text} (the other port has {_gigabits(ports[-1])})"


def _gigabits(rate: float) -> str:
    return f"{rate * 8 / 1e9:.3g}"


def _name(run: RunResult) -> str:
    return " - ".join(run.nodes[:2])


def _subject(request: CheckRequest, run: RunResult, count: int) -> str:
    if request.kind == "collective":
        return "the collective"
    return f"the slowest pair, {_name(run)}," if count > 1 else _name(run)
