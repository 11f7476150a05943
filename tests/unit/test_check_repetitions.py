"""What is slow or failed is repeated before it names anything."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import pytest

from nodevitals.checks.model import CheckRequest, RunResult, Verdict
from nodevitals.checks.requests.rounds import Plan
from nodevitals.checks.verdicts.verdict import judge, to_repeat
from nodevitals.probes.fabric.tools.report import failed
from testbed.slowfleet import RATE, matrix, names
from testbed.verdicts import PORTS, check_of, measured, pair, subjects, verdict


def repeated(
    request: CheckRequest, rate: Callable[[str, str], object], again: Callable[[str, str], object]
) -> tuple[list[RunResult], Verdict]:
    """The results of a check whose tests have the rate `again` where they are repeated, as the hub
    and the command run it.
    """
    check = check_of(request)
    results = measured(request, rate, PORTS)
    while wanted := {repeat.number for repeat in to_repeat(check, results)}:
        others = measured(request, again, PORTS, check.cost.runs)
        others += measured(request, again, PORTS, 2 * check.cost.runs)
        results += [run for run in others if run.number in wanted]
    return results, judge(check, results)


@pytest.mark.parametrize("count", [2, 4])
def test_below_a_quarter_of_the_rate_of_the_port_is_bad(count: int) -> None:
    request = matrix(names(count))
    results, found = repeated(request, lambda a, b: RATE / 40, lambda a, b: RATE / 40)
    # Few are repeated twice, many once.
    assert len(results) == {2: 3, 4: 2}[count] * Plan(request).runs
    assert (found.outcome, found.reason) == ("bad", "hardware")
    assert "reached 9.6 of 400 Gb/s, 2 %, also when it was repeated" in found.message


def test_a_node_that_is_far_below_the_rate_of_its_port_is_named() -> None:
    def rate(a: str, b: str) -> float:
        return 0.9 * PORTS[0] if "gpu-0002" not in (a, b) else RATE / 40

    results, found = repeated(matrix(names(4)), rate, rate)
    assert len(results) == 12 + 6
    assert [(one.subject, one.scope, one.reason) for one in found.findings] == [
        ("gpu-0002", "node", "hardware")
    ]


def test_of_many_pairs_a_spread_is_repeated_and_speaks_for_the_others() -> None:
    request = matrix(names(12))
    results, found = repeated(request, lambda a, b: RATE / 40, lambda a, b: RATE / 40)
    again = len(results) - Plan(request).runs
    assert 16 <= again <= 32
    assert (found.outcome, subjects(found)) == ("bad", [("hardware", "mlx5_3")])
    # They shared a path: one at a time, each is as fast as its port.
    _, found = repeated(request, lambda a, b: RATE / 40, lambda a, b: 0.95 * PORTS[0])
    assert (found.outcome, found.reason, found.findings) == ("unknown", "threshold", ())
    assert "tests were slow or failed, and not those that were repeated" in found.message


@pytest.mark.parametrize("count", [2, 4, 8])
@pytest.mark.parametrize(
    "odd", [RATE / 40, 0.5 * RATE, failed("unreachable", "x"), failed("timeout", "x")]
)
def test_what_is_slow_or_fails_once_only_names_nobody(count: int, odd: object) -> None:
    """Of the better figure: a busy machine makes a test slower, and none faster."""
    request = matrix(names(count), expected_bytes_per_second=RATE)
    first = names(count)[:2]
    results, found = repeated(
        request, lambda a, b: odd if (a, b) == first else RATE, lambda a, b: RATE
    )
    assert len(results) == Plan(request).runs + 1
    assert (found.outcome, found.message) == ("ok", "no fault found")


@pytest.mark.parametrize("expected", [None, RATE])
def test_nothing_is_repeated_where_all_is_well(expected: float | None) -> None:
    request = matrix(names(6), expected_bytes_per_second=expected)
    assert to_repeat(check_of(request), measured(request, lambda a, b: 0.9 * RATE, PORTS)) == []


@pytest.mark.parametrize(
    ("changes", "test", "ports"),
    [
        ({}, {"sizes": "512KiB"}, PORTS),
        ({}, {}, None),
        ({"expected_bytes_per_second": RATE / 40}, {}, PORTS),
        # One process of iperf3 fills no port of 400 Gb/s, whatever the port is worth.
        ({}, {"tool": "iperf3", "operation": "tcp", "device": "eth2"}, PORTS),
        ({}, {"operation": "send_lat"}, PORTS),
    ],
)
def test_what_promises_no_rate_is_not_repeated(
    changes: dict[str, object], test: dict[str, object], ports: tuple[float, float] | None
) -> None:
    request = pair(**changes)
    own = msgspec.structs.replace(request.test, **test)
    request = msgspec.structs.replace(request, test=own)
    first = measured(request, lambda a, b: RATE / 40, ports)
    assert to_repeat(check_of(request), first) == []
    if request.expected_bytes_per_second:
        assert verdict(request, first).outcome == "ok"


def test_iperf3_is_held_against_a_port_that_one_process_can_fill() -> None:
    request = pair()
    own = msgspec.structs.replace(request.test, tool="iperf3", operation="tcp", device="eth2")
    request = msgspec.structs.replace(request, test=own)
    ten = (1.25e9, 1.25e9)
    first = measured(request, lambda a, b: 0.1e9, ten)
    series = ("tcp eth2",)
    assert to_repeat(check_of(request), first) == [(2, ("a", "b"), series), (3, ("b", "a"), series)]
    assert verdict(request, measured(request, lambda a, b: 1.1e9, ten)).outcome == "ok"
