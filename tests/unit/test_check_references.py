"""Verdicts by the rate of a port, a usual latency or the last check, and without any of them."""

from __future__ import annotations

import msgspec
import pytest

from nodevitals.checks.model import TestRequest
from nodevitals.checks.verdicts.verdict import judge
from nodevitals.probes.fabric.tools.report import Report, ResultRow
from testbed.slowfleet import RATE, matrix, names
from testbed.verdicts import NO_REFERENCE, PORTS, check_of, measured, pair, verdict, with_sizes


@pytest.mark.parametrize("count", [2, 4, 8])
def test_nodes_that_are_all_alike_are_unknown_without_a_reference(count: int) -> None:
    """Whatever their speed: partners that are all slow agree with each other."""
    request = matrix(names(count))
    for rate in (RATE, RATE / 40):
        found = verdict(request, measured(request, lambda a, b, rate=rate: rate))  # type: ignore[misc]
        assert (found.outcome, found.reason, found.findings) == ("unknown", "threshold", ())
        assert f"{rate * 8 / 1e9:.3g} Gb/s; {NO_REFERENCE}" in found.message


def test_the_share_of_the_rate_of_the_port_is_named() -> None:
    request = pair()
    found = verdict(request, measured(request, lambda a, b: RATE / 2, PORTS))
    assert (found.outcome, found.reason) == ("unknown", "threshold")
    assert found.message == f"a - b reached 192 of 400 Gb/s, 48 %; {NO_REFERENCE}"
    small = with_sizes(request, "64KiB")
    found = verdict(small, measured(small, lambda a, b: RATE / 80, PORTS))
    assert found.message == (
        f"a - b reached 4.8 of 400 Gb/s, 1 %; {NO_REFERENCE}, or test with --sizes 1MiB"
    )


def test_a_physical_port_that_reaches_most_of_its_rate_is_well() -> None:
    for request in (pair(), with_sizes(pair(), "64KiB"), matrix(names(4))):
        well = measured(request, lambda a, b: 0.8 * PORTS[0], PORTS)
        assert verdict(request, well).outcome == "ok"
        near = measured(request, lambda a, b: 0.79 * PORTS[0], PORTS)
        assert verdict(request, near).outcome == "unknown"
        # One port came up slower than the other: which rate is right is not known.
        differ = measured(request, lambda a, b: PORTS[0], (PORTS[0], 2 * PORTS[0]))
        assert verdict(request, differ).outcome == "unknown"
        one = measured(request, lambda a, b: PORTS[0], PORTS)
        one[-1] = msgspec.structs.replace(one[-1], ports_bytes_per_second=())
        assert verdict(request, one).outcome == "unknown"


def latencies(microseconds: float, layer: str | None = "InfiniBand") -> Report:
    row = ResultRow(
        message_bytes=8,
        latency_seconds={"median": microseconds / 1e6},
        link_layer=layer,  # type: ignore[arg-type]
    )
    return Report(outcome="ok", rows=(row,))


@pytest.mark.parametrize(
    ("operation", "layer", "microseconds", "outcome"),
    [
        ("send_lat", "InfiniBand", 1.6, "ok"),
        ("send_lat", "InfiniBand", 6.0, "unknown"),
        ("send_lat", "InfiniBand", 16.0, "bad"),
        ("read_lat", "InfiniBand", 9.0, "ok"),
        ("read_lat", "InfiniBand", 16.0, "unknown"),
        ("write_lat", "Ethernet", 9.0, "ok"),
        ("write_lat", "Ethernet", 31.0, "bad"),
        ("write_lat", None, 1.0, "unknown"),
    ],
)
def test_a_latency_is_held_against_its_link_layer(
    operation: str, layer: str | None, microseconds: float, outcome: str
) -> None:
    test = TestRequest(tool="perftest", operation=operation, device="mlx5_0", sizes="8B")
    request = pair(test=test)
    found = verdict(request, measured(request, lambda a, b: latencies(microseconds, layer), PORTS))
    assert found.outcome == outcome
    # A virtual device promises nothing.
    found = verdict(request, measured(request, lambda a, b: latencies(microseconds, layer)))
    assert found.outcome == "unknown"


def test_a_latency_has_an_expected_value_of_the_request() -> None:
    test = TestRequest(tool="perftest", operation="send_lat", device="mlx5_0", sizes="8B")
    request = matrix(names(4), test=test, expected_latency_seconds=2e-6)
    assert verdict(request, measured(request, lambda a, b: latencies(2.4))).outcome == "ok"
    found = verdict(request, measured(request, lambda a, b: latencies(20.0)))
    assert found.message == "mlx5_0: 4 of 4 nodes: 10.0 times the expected latency"
    found = verdict(
        request, measured(request, lambda a, b: latencies(20.0 if "gpu-0003" in (a, b) else 2.0))
    )
    assert found.message == "gpu-0003: 10.0 times the expected latency"


def test_a_past_that_had_no_reference_shows_what_is_slower_and_nothing_else() -> None:
    for request in (pair(), matrix(names(4))):
        check = check_of(request, baseline=RATE, baseline_ok=False)
        same = judge(check, measured(request, lambda a, b: RATE))
        assert (same.outcome, same.reason) == ("unknown", "threshold")
        assert "100 % of the last like check, which had none either" in same.message
        slower = judge(check, measured(request, lambda a, b: RATE / 2))
        assert (slower.outcome, slower.reason) == ("bad", "threshold")
