"""Two checks compared: the figures of each node and pair, largest changes first."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from nodevitals.checks.model import Check, CheckDetail, CheckRequest, Cost, Requester, RunResult
from nodevitals.checks.requests import runs
from nodevitals.probes.fabric.settings import TestSettings
from nodevitals.probes.fabric.tools.report import LATENCY, Report, ResultRow, failed
from nodevitals_hub.checks import planning
from nodevitals_hub.checks.check_requests import RefusedError
from nodevitals_hub.web.results.comparison import MAX_CHANGES, compare

NOW, THEN = "20261128-100000-nownow", "20261127-100000-before"
Speed = Callable[[tuple[str, ...], TestSettings], float]


def detail(identity: str, speed: Speed, nodes: int = 4, **fields: Any) -> CheckDetail:
    """A check whose tests have the figures of a function of nodes and size."""
    test = {"tool": "perftest", "operation": "write_bw", "device": "mlx5_0", "sizes": "64KiB"}
    names = [f"gpu-{number}" for number in range(1, nodes + 1)]
    wanted = {"kind": "matrix", "nodes": names, **fields}
    wanted["test"] = {**test, **fields.get("test", {})}
    request = msgspec.convert(wanted, CheckRequest)
    tests = runs.pair_tests(request) if request.kind != "node" else ()
    results = tuple(
        RunResult(
            number=run.number,
            nodes=run.nodes,
            reports=tuple(report(one, speed(run.nodes, one)) for one in tests)
            or (Report(outcome="ok"),),
        )
        for run in planning.plan(request)
    )
    check = Check(
        id=identity,
        request=request,
        requester=Requester(trigger="page"),
        cost=Cost(nodes=nodes, runs=len(results), node_seconds=1, seconds=1, bytes=1),
        created=0.0,
        phase="done",
    )
    return CheckDetail(check=check, results=results)


def report(test: TestSettings, figure: float) -> Report:
    is_latency = test.operation in LATENCY
    row = ResultRow(
        message_bytes=test.message_bytes,
        bandwidth_bytes_per_second=None if is_latency else figure,
        latency_seconds={"median": figure} if is_latency else None,
    )
    return Report(outcome="ok", rows=(row,))


def steady(_: tuple[str, ...], test: TestSettings) -> float:
    return test.message_bytes * 1e5


def test_a_node_that_became_slower_is_first() -> None:
    slow = detail(NOW, lambda nodes, test: test.message_bytes * (5e4 if "gpu-3" in nodes else 1e5))
    found = compare(slow, detail(THEN, steady))
    assert (found.check, found.earlier) == (NOW, THEN)
    first = found.nodes[0]
    assert (first.operation, first.devices, first.message_bytes) == ("write_bw", "mlx5_0", 65536)
    assert first.nodes == ("gpu-3",)
    assert (first.now, first.earlier, first.ratio) == (65536 * 5e4, 65536 * 1e5, 0.5)
    assert {change.ratio for change in found.nodes[1:]} == {1.0}
    by_ratio = [change.ratio or 0.0 for change in found.tests]
    assert by_ratio == sorted(by_ratio)
    assert all(("gpu-3" in change.nodes) == (change.ratio == 0.5) for change in found.tests)


def test_a_node_that_became_faster_is_a_change_too() -> None:
    found = compare(
        detail(NOW, lambda nodes, test: test.message_bytes * (2e5 if "gpu-2" in nodes else 1.1e5)),
        detail(THEN, steady),
    )
    assert (found.nodes[0].nodes, found.nodes[0].ratio) == (("gpu-2",), 2.0)


def test_a_latency_that_grew_is_slower() -> None:
    test = {"operation": "send_lat"}
    found = compare(
        detail(NOW, lambda *_: 4e-6, test=test), detail(THEN, lambda *_: 2e-6, test=test)
    )
    assert {change.ratio for change in (*found.nodes, *found.tests)} == {0.5}


def test_a_test_that_fails_now_comes_before_slow_ones() -> None:
    now = detail(NOW, lambda nodes, test: test.message_bytes * (1e4 if "gpu-1" in nodes else 1e5))
    down = failed("port_down", "mlx5_0: DOWN")
    place = next(n for n, run in enumerate(now.results) if set(run.nodes) == {"gpu-3", "gpu-4"})
    results = list(now.results)
    results[place] = replace(results[place], reports=(down,))
    found = compare(replace(now, results=tuple(results)), detail(THEN, steady))
    first = found.tests[0]
    assert set(first.nodes) == {"gpu-3", "gpu-4"}
    assert (first.now, first.ratio, first.earlier_problem) == (None, None, "")
    assert "mlx5_0: DOWN" in first.problem


def test_the_largest_size_of_both_is_compared() -> None:
    now = detail(NOW, steady, test={"sizes": "64KiB,1MiB"})
    found = compare(now, detail(THEN, steady))
    assert {change.message_bytes for change in found.tests} == {65536}
    assert {change.ratio for change in found.tests} == {1.0}
    assert found.sizes == ()
    both = compare(now, detail(THEN, steady, test={"sizes": "64KiB,1MiB"}))
    assert [row.message_bytes for row in both.sizes] == [65536, 1 << 20]


def test_each_operation_and_device_is_compared_with_its_own() -> None:
    test = {"operation": "write_bw,send_lat", "device": "mlx5_0,mlx5_1"}

    def slow_rail(_: tuple[str, ...], test: TestSettings) -> float:
        figure = 2e-6 if test.operation == "send_lat" else 5e10
        return figure / 2 if (test.operation, test.device) == ("write_bw", "mlx5_1") else figure

    def usual(_: tuple[str, ...], test: TestSettings) -> float:
        return 2e-6 if test.operation == "send_lat" else 5e10

    found = compare(detail(NOW, slow_rail, test=test), detail(THEN, usual, test=test))
    worst = {(change.operation, change.devices) for change in found.nodes if change.ratio == 0.5}
    assert worst == {("write_bw", "mlx5_1")}
    assert len(found.nodes) == 4 * 4
    assert [change.ratio for change in found.nodes[:4]] == [0.5] * 4
    of_one = compare(
        detail(NOW, slow_rail, test=test), detail(THEN, usual, test={"operation": "write_bw"})
    )
    assert {change.devices for change in of_one.tests} == {"mlx5_0"}


def test_tests_that_only_one_check_has_are_counted() -> None:
    now, then = detail(NOW, steady, nodes=6), detail(THEN, steady, nodes=4)
    tested = [{run.nodes for run in one.results} for one in (now, then)]
    found = compare(now, then)
    assert found.compared == len(tested[0] & tested[1]) > 0
    assert found.only_now == len(tested[0] - tested[1]) > 0
    assert found.only_earlier == len(tested[1] - tested[0])


def test_nodes_of_their_own_checks_are_compared_by_their_problems() -> None:
    nodes = [f"gpu-{number}" for number in range(1, 4)]
    now = detail(NOW, steady, kind="node", nodes=3, test={})
    bad = replace(now.results[1], reports=(failed("port_down", "mlx5_0: DOWN"),))
    now = replace(now, results=(now.results[0], bad, now.results[2]))
    found = compare(now, detail(THEN, steady, kind="node", nodes=3, test={}))
    assert [change.nodes for change in found.tests] == [(name,) for name in ["gpu-2", *nodes[::2]]]
    assert "DOWN" in found.tests[0].problem


@pytest.mark.parametrize("test", [{"operation": "read_bw"}, {"tool": "iperf3"}])
def test_other_tests_are_refused(test: dict[str, str]) -> None:
    with pytest.raises(RefusedError, match="same kind, tool and operation"):
        compare(detail(NOW, steady), detail(THEN, steady, test=test))


def test_the_changes_of_many_nodes_are_bounded() -> None:
    found = compare(
        detail(NOW, steady, nodes=200, rounds=3), detail(THEN, steady, nodes=200, rounds=3)
    )
    assert found.compared >= 300
    assert len(found.nodes) == len(found.tests) == MAX_CHANGES
