"""Bisection of collectives: the node, the link or the rail is named, within a budget."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nodevitals.checks.isolation.bisection import Bisection, IsolationState, request_of, state_of
from nodevitals.checks.isolation.rails import HCA, rails_of
from nodevitals.checks.isolation.steps import Group
from nodevitals.checks.model import CheckRequest, RunResult, TestRequest
from nodevitals.probes.fabric.tools.report import Report
from testbed.slowfleet import (
    RATE,
    Fleet,
    broken,
    bus_report,
    collective,
    isolate,
    names,
    result_of,
)

RAILS = tuple(f"mlx5_{number}" for number in range(8))
Answer = Callable[[CheckRequest], Report]


def slow_where(bad: Callable[[set[str]], bool]) -> Answer:
    return lambda request: bus_report(RATE * (0.5 if bad(set(request.nodes)) else 1))


def subjects(search: Bisection) -> list[tuple[str, str]]:
    return [(one.scope, one.subject) for one in search.verdict().findings]


def two_of(count: int) -> st.SearchStrategy[set[str]]:
    return st.sets(st.sampled_from(names(count)), min_size=2, max_size=2)


@settings(deadline=None, max_examples=60)
@given(st.integers(3, 300), st.data())
def test_one_bad_node_is_named_within_two_runs_per_halving(count: int, data: st.DataObject) -> None:
    bad = data.draw(st.sampled_from(names(count)))
    search, batches = isolate(collective(names(count)), slow_where(lambda s: bad in s), RATE)
    verdict = search.verdict()
    assert subjects(search) == [("node", bad)]
    assert (verdict.outcome, verdict.reason) == ("bad", "threshold")
    assert verdict.findings[0].ratio == 0.5
    assert len(search.state.trials) <= 2 * math.ceil(math.log2(count)) + 4
    assert batches <= math.ceil(math.log2(count)) + 4


@settings(deadline=None, max_examples=60)
@given(st.integers(4, 100), st.data())
def test_two_bad_nodes_are_named(count: int, data: st.DataObject) -> None:
    bad = set(
        data.draw(st.lists(st.sampled_from(names(count)), min_size=2, max_size=2, unique=True))
    )
    search, _ = isolate(collective(names(count)), slow_where(lambda s: bool(bad & s)), RATE)
    assert subjects(search) == [("node", name) for name in sorted(bad)]


@settings(deadline=None, max_examples=60)
@given(st.integers(3, 100), st.data())
def test_a_bad_link_is_named_by_its_two_nodes(count: int, data: st.DataObject) -> None:
    bad = set(
        data.draw(st.lists(st.sampled_from(names(count)), min_size=2, max_size=2, unique=True))
    )
    search, _ = isolate(collective(names(count)), slow_where(lambda s: bad <= s), RATE)
    assert subjects(search) == [("link", " - ".join(sorted(bad)))]


def test_a_path_between_two_halves_is_named() -> None:
    nodes = names(64)
    one, other = set(nodes[:32]), set(nodes[32:])
    search, _ = isolate(collective(nodes), slow_where(lambda s: bool(s & one and s & other)), RATE)
    assert subjects(search) == [("link", "gpu-0000..gpu-0031 - gpu-0032..gpu-0063")]


def test_a_rail_is_named_where_all_groups_are_bad() -> None:
    def answer(request: CheckRequest) -> Report:
        if request.test.device:
            return bus_report(RATE / (16 if request.test.device == "mlx5_3" else 8))
        return bus_report(RATE / 2)

    search, batches = isolate(collective(names(64)), answer, RATE, RAILS)
    assert subjects(search) == [("rail", "mlx5_3")]
    assert search.verdict().message == "mlx5_3: 50 % of the other rails"
    assert batches <= 4


def test_the_port_of_a_bad_node_is_a_suspect() -> None:
    def answer(request: CheckRequest) -> Report:
        bad = "gpu-0005" in request.nodes
        if request.test.device:
            return bus_report(RATE / (16 if bad and request.test.device == "mlx5_3" else 8))
        return bus_report(RATE / (2 if bad else 1))

    search, _ = isolate(collective(names(64)), answer, RATE, RAILS)
    (found,) = search.verdict().findings
    assert (found.subject, found.suspects) == ("gpu-0005", ("port mlx5_3",))


def test_where_most_rails_of_a_node_fail_no_port_is_a_suspect() -> None:
    def answer(request: CheckRequest) -> Report:
        bad = "gpu-0005" in request.nodes
        if bad and (not request.test.device or request.test.device > "mlx5_2"):
            return broken("port_down")
        return bus_report(RATE)

    search, _ = isolate(collective(names(16)), answer, None, RAILS)
    (found,) = search.verdict().findings
    assert (found.subject, found.reason, found.suspects) == ("gpu-0005", "hardware", ())


def test_a_group_that_only_its_size_makes_slow_is_unknown() -> None:
    search, _ = isolate(collective(names(64)), slow_where(lambda s: len(s) > 40), RATE)
    verdict = search.verdict()
    assert (verdict.outcome, verdict.findings) == ("unknown", ())
    assert verdict.message == (
        "64 nodes together are bad (50 % of the expected rate), and all parts of them good"
    )


def test_what_is_good_the_second_time_is_unknown() -> None:
    search, _ = isolate(collective(names(16)), slow_where(lambda s: False), RATE)
    assert search.verdict().outcome == "unknown"
    assert search.verdict().message == "16 nodes were bad once, and then good"


@pytest.mark.parametrize(
    ("kind", "outcome", "reason"),
    [("port_down", "bad", "hardware"), ("tool_missing", "unknown", "harness")],
)
def test_a_failure_is_isolated_without_any_rate(kind: str, outcome: str, reason: str) -> None:
    def answer(request: CheckRequest) -> Report:
        return broken(kind) if "gpu-0009" in request.nodes else bus_report(RATE)

    search, _ = isolate(collective(names(32)), answer)
    verdict = search.verdict()
    assert (verdict.outcome, verdict.reason) == (outcome, reason)
    assert subjects(search) == [("node", "gpu-0009")]


def test_what_is_slow_once_names_no_node() -> None:
    """Each group with this node is slow when it is run first, and well the second time."""
    seen: set[tuple[str, ...]] = set()

    def answer(request: CheckRequest) -> Report:
        first = request.nodes not in seen
        seen.add(request.nodes)
        return bus_report(RATE / (2 if first and "gpu-0007" in request.nodes else 1))

    search, _ = isolate(collective(names(32)), answer, RATE)
    assert search.verdict().outcome == "unknown"
    assert "were bad once, and then good" in search.verdict().message


def test_slow_is_what_is_nearer_to_the_whole_than_to_the_reference() -> None:
    """Just below the share: a group with the slow node may be just above it."""

    def answer(request: CheckRequest) -> Report:
        return bus_report(RATE * (0.81 if "gpu-0007" in request.nodes else 1))

    search, _ = isolate(collective(names(32)), answer, RATE, whole=0.79 * RATE)
    assert subjects(search) == [("node", "gpu-0007")]


def test_two_nodes_alone_cannot_be_told_apart() -> None:
    search, _ = isolate(collective(names(2)), slow_where(lambda s: True), RATE)
    assert search.verdict().outcome == "unknown"
    assert "no node among gpu-0000, gpu-0001 is good" in search.verdict().message
    search, batches = isolate(collective(names(1)), slow_where(lambda s: True), RATE)
    assert (search.verdict().outcome, batches) == ("unknown", 0)


def test_where_everything_is_bad_the_search_ends_early() -> None:
    search, batches = isolate(collective(names(1000)), slow_where(lambda s: True), RATE, RAILS)
    assert search.verdict().outcome == "unknown"
    assert "all of 16 groups are bad" in search.verdict().message
    assert batches <= 8


def test_the_budget_of_runs_and_of_seconds_holds() -> None:
    bad = "gpu-0500"
    search, _ = isolate(collective(names(1000)), slow_where(lambda s: bad in s), RATE, max_runs=10)
    assert len(search.state.trials) <= 10
    assert search.verdict().outcome == "unknown"
    assert "gpu-0500" in search.verdict().message or "more" in search.verdict().message
    short = Bisection(state_of(collective(names(1000)), RATE, max_seconds=60))
    short.feed([RunResult(number=0, nodes=one.nodes, seconds=40) for one in short.next()])
    assert short.next() != ()  # both ran at the same time
    short.feed([RunResult(number=0, nodes=one.nodes, seconds=40) for one in short.next()])
    assert short.next() == ()


def test_a_group_is_run_with_the_largest_size_only_and_its_own_device() -> None:
    request = collective(names(8))
    test = msgspec.structs.replace(
        request.test, sizes="8B..1GiB x2", environment={"NCCL_IB_HCA": "mlx5_9", "NCCL_IB_TC": "8"}
    )
    request = msgspec.structs.replace(request, test=test)
    found = request_of(request, Group(names(2), "mlx5_1"))
    assert (found.nodes, found.test.sizes, found.test.device) == (names(2), "1GiB", "mlx5_1")
    assert found.test.environment == {"NCCL_IB_TC": "8"}
    search, _ = isolate(request, slow_where(lambda s: "gpu-0003" in s), RATE)
    assert subjects(search) == [("node", "gpu-0003")]


def test_a_result_that_is_missing_is_a_failure_and_no_endless_search() -> None:
    search = Bisection(state_of(collective(names(8)), RATE))
    for _ in range(64):
        search.feed([])
    assert (search.next(), search.verdict().outcome) == ((), "unknown")


def test_a_group_that_jobs_need_ends_the_search() -> None:
    search = Bisection(state_of(collective(names(8)), RATE))
    groups = search.next()
    search.feed([RunResult(number=0, nodes=one.nodes, skipped="job_marker") for one in groups])
    verdict = search.verdict()
    assert (search.next(), verdict.outcome, verdict.reason) == ((), "unknown", "workload")


@settings(deadline=None, max_examples=40)
@given(st.integers(2, 40), st.integers(0, 2**32))
def test_any_answers_end_in_a_verdict_and_a_restart_changes_nothing(count: int, seed: int) -> None:
    """Groups are good or bad, or fail, at random, as an unstable network would have it."""
    fleet = Fleet(names(count), noise=0.4, seed=seed)

    def answer(request: CheckRequest) -> Report:
        report = fleet.collective(request.nodes)
        figure = report.rows[0].bus_bandwidth_bytes_per_second or 0.0
        return broken() if figure < RATE / 2 else report

    search = Bisection(state_of(collective(names(count)), RATE, RAILS[:2]))
    for _ in range(80):
        groups = search.next()
        if not groups:
            break
        search.feed([result_of(search.state, one, answer) for one in groups])
        stored = msgspec.json.encode(search.state)
        again = Bisection(msgspec.json.decode(stored, type=IsolationState))
        assert again.next() == search.next()
        assert again.verdict() == search.verdict()
    assert search.next() == ()
    assert search.verdict().outcome in ("bad", "unknown")


TWO = {"mlx5_0": True, "mlx5_1": True}


@pytest.mark.parametrize(
    ("fields", "nodes", "rails"),
    [
        ({}, [TWO, TWO], ("mlx5_0", "mlx5_1")),
        ({}, [{**TWO, "mlx5_10": True, "mlx5_2": True}, {**TWO, "mlx5_2": True}, {}], "012"),
        ({}, [{**TWO, "mlx5_2": False}] * 3, ("mlx5_0", "mlx5_1")),
        ({}, [{"mlx5_0": True, "mlx5_1": False}, TWO, TWO], ("mlx5_0", "mlx5_1")),
        ({}, [{"mlx5_0": True}] * 2, ()),
        ({}, [], ()),
        ({"device": "mlx5_0"}, [TWO, TWO], ()),
        ({"tool": "hccl"}, [TWO, TWO], ()),
        ({"environment": {HCA: "=mlx5_0:1,mlx5_1:1"}}, [], ("mlx5_0", "mlx5_1")),
        ({"environment": {HCA: "=mlx5_0:1,mlx5_1:2"}}, [TWO, TWO], ()),
        ({"environment": {HCA: "=mlx5_0"}}, [TWO, TWO], ()),
        ({"environment": {HCA: "mlx5"}}, [TWO, TWO], ("mlx5_0", "mlx5_1")),
        ({"environment": {HCA: "^mlx5_2"}}, [{**TWO, "mlx5_2": True}] * 2, ("mlx5_0", "mlx5_1")),
    ],
)
def test_rails(fields: dict[str, Any], nodes: list[dict[str, bool]], rails: Sequence[str]) -> None:
    """Of the request, or of all nodes; a port that is down on one node is one of them."""
    expected = tuple(f"mlx5_{one}" for one in rails) if isinstance(rails, str) else rails
    assert rails_of(TestRequest(**{"tool": "nccl", **fields}), nodes) == expected
