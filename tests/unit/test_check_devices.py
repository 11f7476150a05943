"""Devices of a check: lists, patterns, all; the series that they make."""

from __future__ import annotations

import pytest

from nodevitals.checks import CheckError
from nodevitals.checks.model import RunResult, TestRequest
from nodevitals.checks.requests import runs
from nodevitals.checks.requests.devices import expanded, is_complete
from nodevitals.checks.requests.runs import request_of, results_of, series_of
from testbed.slowfleet import matrix, names, pair_report

FOUR = {f"mlx5_{number}": True for number in range(4)}


def test_a_pattern_means_what_at_least_half_of_the_nodes_have() -> None:
    lost = {name: up for name, up in FOUR.items() if name != "mlx5_3"}
    storage = {**FOUR, "mlx5_10": True}
    nodes = [FOUR, FOUR, lost, storage]
    assert expanded("all", nodes) == "mlx5_0,mlx5_1,mlx5_2,mlx5_3"
    assert expanded("mlx5_[13]", nodes) == "mlx5_1,mlx5_3"
    assert expanded("mlx5_2,mlx5_*", nodes) == "mlx5_2,mlx5_0,mlx5_1,mlx5_3"
    assert expanded("mlx5_10, mlx5_10", nodes) == "mlx5_10"
    assert expanded("all", [storage, storage]).endswith("mlx5_3,mlx5_10")


def test_a_device_that_is_down_everywhere_is_not_used() -> None:
    assert expanded("all", [{**FOUR, "mlx5_3": False}] * 3) == "mlx5_0,mlx5_1,mlx5_2"
    one_down = [{**FOUR, "mlx5_3": False}, FOUR]
    assert expanded("all", one_down) == "mlx5_0,mlx5_1,mlx5_2,mlx5_3"


def test_no_device_is_an_error_that_says_what_there_is() -> None:
    with pytest.raises(CheckError, match=r"no device is 'bnxt\*': nodes have mlx5_0, mlx5_1"):
        expanded("bnxt*", [FOUR])
    with pytest.raises(CheckError, match="nodes have none"):
        expanded("all", [{}, {}])
    # A name that is no name reaches no command line, whoever exposes it.
    with pytest.raises(CheckError, match="nodes have none"):
        expanded("all", [{"-d;x": True}])


@pytest.mark.parametrize("text", ["all", "mlx5_*", "mlx5_0,mlx5_?", "mlx5_[01]"])
def test_patterns_are_not_complete(text: str) -> None:
    assert not is_complete(text)


def wanted(**changes: object) -> TestRequest:
    fields = {
        "tool": "perftest",
        "operation": "write_bw,read_lat",
        "device": "mlx5_0,mlx5_1",
        "sizes": "64KiB,1MiB",
        "iterations": 200,
        "queue_pairs": 4,
        **changes,
    }
    return TestRequest(**fields)  # type: ignore[arg-type]


def test_series_are_operations_and_devices_with_a_latency_of_short_messages() -> None:
    assert [(one.name, one.sizes, one.first) for one in series_of(wanted())] == [
        ("write_bw mlx5_0", (65536, 1 << 20), 0),
        ("write_bw mlx5_1", (65536, 1 << 20), 2),
        ("read_lat mlx5_0", (8,), 4),
        ("read_lat mlx5_1", (8,), 5),
    ]
    request = matrix(names(2), test=wanted())
    tests = runs.pair_tests(request)
    assert [(one.queue_pairs, one.iterations) for one in tests[3:5]] == [(4, 200), (1, 1000)]
    assert not [problem for one in tests for problem in one.problems()]


def test_crossed_series_have_each_device_of_the_target() -> None:
    crossed = wanted(operation="write_bw", sizes="1MiB", crossed=True)
    tests = runs.pair_tests(matrix(names(2), test=crossed))
    assert [(one.device, one.peer_device) for one in tests] == [
        ("mlx5_0", ""),
        ("mlx5_0", "mlx5_1"),
        ("mlx5_1", "mlx5_0"),
        ("mlx5_1", ""),
    ]
    assert series_of(crossed)[1].name == "write_bw mlx5_0 - mlx5_1"


def test_the_part_of_a_series_is_a_request_and_results() -> None:
    request = matrix(names(2), test=wanted(), expected_bytes_per_second=1e9)
    _, second, latency, _ = series_of(request.test)
    own = request_of(request, second)
    assert (own.test.device, own.test.operation) == ("mlx5_1", "write_bw")
    assert own.expected_bytes_per_second == 1e9
    assert request_of(request, latency).expected_bytes_per_second is None
    reports = tuple(pair_report(float(rate)) for rate in range(1, 7))
    run = RunResult(number=0, nodes=names(2), reports=reports)
    (part,) = results_of([run], second)
    assert part.reports == reports[2:4]
