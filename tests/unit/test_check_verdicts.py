"""Verdicts: which node, link or rail is bad, and what could not be told."""

from __future__ import annotations

import random

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nodevitals.checks.model import CheckRequest, RunResult, TestRequest, Verdict
from nodevitals.checks.requests.rounds import Plan
from nodevitals.checks.verdicts.figures import median_of
from nodevitals.checks.verdicts.outliers import at_least
from nodevitals.checks.verdicts.verdict import is_bad, judge
from nodevitals.probes.fabric.tools.report import (
    REASONS,
    Report,
    ResultRow,
    failed,
    still_transferring,
)
from testbed.slowfleet import (
    RATE,
    Fleet,
    bus_report,
    collective,
    isolate,
    matrix,
    names,
    pair_report,
)
from testbed.verdicts import NO_REFERENCE, PORTS, check_of, measured, pair, subjects, verdict


def test_a_healthy_matrix_is_ok() -> None:
    request = matrix(names(8))
    found = verdict(request, Fleet(names(8)).pairs(request), baseline=RATE)
    assert found == Verdict(outcome="ok", message="no fault found")


def test_a_test_that_is_still_transferring_at_its_limit_is_slow() -> None:
    """The tool that did not start, or that no server answered, is a fault of the test."""
    request = pair()
    found = verdict(request, measured(request, lambda a, b: still_transferring(20)))
    assert (found.outcome, found.reason) == ("bad", "threshold")
    assert found.message == "a - b: timeout: still transferring after 20 s"
    request = matrix(names(4))
    results = measured(request, lambda a, b: still_transferring(20))
    found = verdict(request, results)
    assert (found.outcome, subjects(found)) == ("bad", [("threshold", "mlx5_3")])
    slow = measured(
        request, lambda a, b: still_transferring(20) if "gpu-0001" in (a, b) else RATE, PORTS
    )
    assert subjects(verdict(request, slow)) == [("threshold", "gpu-0001")]
    stuck = verdict(request, measured(request, lambda a, b: failed("timeout", "no result in 20 s")))
    assert (stuck.outcome, stuck.reason) == ("unknown", "harness")


@pytest.mark.parametrize("count", [4, 5, 8, 16])
def test_one_slow_node_is_named_with_its_port(count: int) -> None:
    request = matrix(names(count))
    results = measured(request, lambda a, b: RATE * (0.41 if "gpu-0002" in (a, b) else 1.0))
    found = verdict(request, results)
    assert (found.outcome, found.reason) == ("bad", "threshold")
    (node,) = found.findings
    assert (node.subject, node.scope, node.ratio) == ("gpu-0002", "node", 0.41)
    assert (node.message, node.suspects) == ("41 % of the median", ("port mlx5_3",))
    assert found.message == "gpu-0002: 41 % of the median"


def test_two_slow_nodes_of_eight_are_named() -> None:
    slow = {"gpu-0001", "gpu-0006"}
    request = matrix(names(8))
    results = measured(request, lambda a, b: RATE * (0.5 if slow & {a, b} else 1.0))
    assert subjects(verdict(request, results)) == [("threshold", one) for one in sorted(slow)]


def test_a_slow_link_is_named_where_both_nodes_are_well() -> None:
    request = matrix(names(8))
    results = measured(request, lambda a, b: RATE * (0.5 if {a[-1], b[-1]} == set("25") else 1.0))
    (found,) = verdict(request, results).findings
    assert sorted(found.subject.split(" - ")) == ["gpu-0002", "gpu-0005"]
    assert (found.scope, found.message) == ("link", "50 % of the median")


@pytest.mark.parametrize(
    ("operation", "way"),
    [("write_bw", "sending"), ("send_bw", "sending"), ("read_bw", "receiving")],
)
def test_a_node_that_is_slow_in_one_direction_only(operation: str, way: str) -> None:
    request = matrix(names(16))
    test = msgspec.structs.replace(request.test, operation=operation)
    request = msgspec.structs.replace(request, test=test)
    results = measured(request, lambda a, b: RATE * (0.5 if a == "gpu-0003" else 1.0))
    (found,) = verdict(request, results).findings
    assert (found.subject, found.scope) == ("gpu-0003", "node")
    assert found.suspects == (f"port mlx5_3, {way}",)


def test_slow_latencies_are_compared_inversely() -> None:
    test = TestRequest(tool="perftest", operation="send_lat", device="mlx5_0", sizes="8B")
    request = matrix(names(6), test=test)

    def latency(a: str, b: str) -> Report:
        value = 4e-6 if "gpu-0004" in (a, b) else 2e-6
        return Report(
            outcome="ok", rows=(ResultRow(message_bytes=8, latency_seconds={"median": value}),)
        )

    results = measured(request, latency)
    found = verdict(request, results)
    assert subjects(found) == [("threshold", "gpu-0004")]
    assert found.findings[0].ratio == 0.5
    assert median_of(request, results) == 2e-6


def test_an_expected_rate_may_find_all_nodes_slow() -> None:
    request = matrix(names(5), expected_bytes_per_second=RATE)
    found = verdict(request, measured(request, lambda a, b: RATE / 2))
    assert found.message == "mlx5_3: 5 of 5 nodes: 50 % of the expected rate"
    assert [one.scope for one in found.findings] == ["rail"]
    most = set(names(3))
    found = verdict(request, measured(request, lambda a, b: RATE * (0.5 if most & {a, b} else 1)))
    assert found.message == (
        "mlx5_3: 3 of 5 nodes (gpu-0000, gpu-0001, gpu-0002): 50 % of the expected rate"
    )


def test_fewer_than_three_partners_name_no_node() -> None:
    request = matrix(names(3))
    results = measured(request, lambda a, b: RATE * (0.4 if "gpu-0000" in (a, b) else 1.0))
    found = verdict(request, results)
    assert {one.scope for one in found.findings} == {"link"}
    assert len(found.findings) == 2


def test_a_pair_is_compared_with_its_expected_rate_or_the_last_check() -> None:
    request = pair()
    results = measured(request, lambda a, b: RATE / 2)
    assert verdict(request, results).outcome == "unknown"
    assert verdict(request, results, baseline=RATE / 2).outcome == "ok"
    found = verdict(request, results, baseline=RATE)
    assert (found.outcome, found.message) == ("bad", "a - b: 50 % of the last check")
    expected = msgspec.structs.replace(request, expected_bytes_per_second=RATE)
    assert verdict(expected, results).message == "a - b: 50 % of the expected rate"


def test_a_matrix_that_is_slower_than_the_last_one_is_a_rail() -> None:
    request = matrix(names(6))
    found = verdict(request, measured(request, lambda a, b: RATE / 2), baseline=RATE)
    assert [(one.scope, one.subject) for one in found.findings] == [("rail", "mlx5_3")]


def test_a_path_between_groups_is_no_fault_of_a_node() -> None:
    """Every node reaches its own group at full speed, and the other one at half."""
    request = matrix(names(8))
    results = measured(
        request, lambda a, b: RATE * (1.0 if (a < "gpu-0004") == (b < "gpu-0004") else 0.5)
    )
    found = verdict(request, results)
    assert (found.outcome, found.reason, found.findings) == ("unknown", "threshold", ())
    assert "32 of 56 tests" in found.message


def test_smaller_sizes_are_a_note() -> None:
    request = matrix(names(8))
    test = msgspec.structs.replace(request.test, sizes="4KiB,1MiB")
    request = msgspec.structs.replace(request, test=test)
    results = [
        msgspec.structs.replace(
            run,
            reports=(
                pair_report(RATE * (0.3 if "gpu-0001" in run.nodes else 0.5)),
                pair_report(RATE),
            ),
        )
        for run in measured(request, lambda a, b: RATE)
    ]
    found = verdict(request, results, baseline=RATE)
    assert (found.outcome, found.message) == (
        "ok",
        "no fault found; slow with 4KiB only: gpu-0001",
    )


@pytest.mark.parametrize(
    ("kind", "reason"),
    [
        ("port_down", "hardware"),
        ("no_device", "hardware"),
        ("corruption", "hardware"),
        ("unreachable", "hardware"),
        ("no_gid", "hardware"),
        ("tool_missing", "harness"),
        ("timeout", "harness"),
        ("peer_busy", "workload"),
    ],
)
def test_a_node_with_which_every_test_fails_is_named(kind: str, reason: str) -> None:
    request = matrix(names(6))
    failure = failed(kind, "what the tool says")  # type: ignore[arg-type]
    results = measured(request, lambda a, b: failure if "gpu-0004" in (a, b) else RATE)
    found = verdict(request, results)
    assert subjects(found) == [(reason, "gpu-0004")]
    assert found.findings[0].message == f"10 of 10 tests failed: {kind}: what the tool says"
    assert found.outcome == ("bad" if reason == "hardware" else "unknown")


@pytest.mark.parametrize("kind", ["no_device", "no_gid", "unreachable", "timeout"])
def test_what_fails_everywhere_alike_names_no_node(kind: str) -> None:
    request = matrix(names(4))
    failure = failed(kind, "mlx5_9 not found")  # type: ignore[arg-type]
    found = verdict(request, measured(request, lambda a, b: failure))
    assert (found.outcome, found.reason, found.findings) == ("unknown", "harness", ())
    assert found.message == f"all 12 tests failed: {kind}: mlx5_9 not found"


def test_one_meaning_of_unreachable() -> None:
    """Of one pair, of a node among others, and of a group of a collective: a fault of a link."""
    lost = failed("unreachable", "192.0.2.9: No route to host")
    found = verdict(pair(), measured(pair(), lambda a, b: lost))
    assert (found.outcome, subjects(found)) == ("bad", [("hardware", "a - b")])
    request = collective(names(8))
    whole = RunResult(number=0, nodes=request.nodes, reports=(lost,))
    search, _ = isolate(request, lambda one: lost if "gpu-0003" in one.nodes else bus_report(RATE))
    found = judge(check_of(request), [whole], search.verdict())
    assert (found.outcome, subjects(found)) == ("bad", [("hardware", "gpu-0003")])
    everywhere, _ = isolate(request, lambda one: lost)
    found = judge(check_of(request), [whole], everywhere.verdict())
    assert (found.outcome, found.reason, found.findings) == ("unknown", "harness", ())


def test_a_gid_that_was_given_and_is_missing_is_no_fault_of_the_node() -> None:
    request = matrix(names(4))
    test = msgspec.structs.replace(request.test, gid_index=9)
    request = msgspec.structs.replace(request, test=test)
    results = measured(request, lambda a, b: failed("no_gid", "x") if a == "gpu-0001" else RATE)
    assert verdict(request, results).reason == "harness"


def test_two_nodes_that_cannot_reach_each_other_but_others_are_a_link() -> None:
    request = matrix(names(6))
    lost = failed("unreachable", "Couldn't connect")
    results = measured(request, lambda a, b: lost if {a[-1], b[-1]} == set("14") else RATE)
    (found,) = verdict(request, results).findings
    assert (found.scope, found.reason) == ("link", "hardware")


def test_a_missing_agent_and_a_node_in_use_are_unknown() -> None:
    request = matrix(names(5))
    results = measured(request, lambda a, b: "no_answer" if "gpu-0003" in (a, b) else RATE)
    found = verdict(request, results)
    assert (found.outcome, subjects(found)) == ("unknown", [("harness", "gpu-0003")])
    results = measured(request, lambda a, b: "job_marker" if "gpu-0003" in (a, b) else RATE)
    found = verdict(request, results)
    assert (found.outcome, subjects(found)) == ("unknown", [("workload", "gpu-0003")])


def test_a_slow_node_is_named_beside_a_missing_one() -> None:
    request = matrix(names(8))

    def rate(a: str, b: str) -> object:
        if "gpu-0003" in (a, b):
            return "no_answer"
        return RATE * (0.5 if "gpu-0006" in (a, b) else 1.0)

    found = verdict(request, measured(request, rate))
    assert (found.outcome, found.reason) == ("bad", "threshold")
    assert subjects(found) == [("threshold", "gpu-0006"), ("harness", "gpu-0003")]


@pytest.mark.parametrize("value", [0.0, -1.0, float("nan"), float("inf")])
def test_a_figure_that_makes_no_sense_is_never_ok(value: float) -> None:
    request = matrix(names(4))
    for results in (
        measured(request, lambda a, b: value),
        measured(request, lambda a, b: value if a == "gpu-0001" else RATE),
    ):
        assert verdict(request, results).outcome == "unknown"


def test_what_did_not_run_is_never_ok() -> None:
    request = matrix(names(4))
    results = measured(request, lambda a, b: RATE)
    assert verdict(request, []).outcome == "unknown"
    found = verdict(request, results[:-1])
    assert (found.outcome, found.reason) == ("unknown", "harness")
    assert "1 of 12 tests did not run" in found.message
    empty = [RunResult(number=run.number, nodes=run.nodes) for run in results]
    assert verdict(request, empty).outcome == "unknown"
    assert verdict(request, results[:1] * 12).outcome == "unknown"


def test_a_collective_is_compared_and_its_isolation_names_the_node() -> None:
    request = collective(names(4))
    half = [RunResult(number=0, nodes=request.nodes, reports=(bus_report(RATE / 2),))]
    first = verdict(request, half)
    assert (first.outcome, first.reason) == ("unknown", "threshold")
    assert first.message == f"the collective reached 24 GB/s on its bus; {NO_REFERENCE}"
    assert verdict(request, half, baseline=RATE / 2).outcome == "ok"
    slow = verdict(request, half, baseline=RATE)
    assert (slow.outcome, slow.message) == ("bad", "all devices: 50 % of the last check's")
    assert is_bad(check_of(request, baseline=RATE), half[0])
    assert not is_bad(check_of(request), half[0])
    isolation = Verdict(
        outcome="bad",
        reason="threshold",
        findings=verdict(
            matrix(names(4)), Fleet(names(4), {"gpu-0001": 0.5}).pairs(matrix(names(4)))
        ).findings,
    )
    found = judge(check_of(request, baseline=RATE), half, isolation)
    assert [one.subject for one in found.findings] == ["gpu-0001"]
    assert found.message.endswith("all 4 nodes: 50 % of the last check's")


def test_a_collective_that_failed_is_harness_or_hardware() -> None:
    request = collective(names(4))
    for kind, outcome, reason in (
        ("timeout", "unknown", "harness"),
        ("tool_missing", "unknown", "harness"),
        ("corruption", "bad", "hardware"),
    ):
        run = RunResult(number=0, nodes=request.nodes, reports=(failed(kind, "x"),))  # type: ignore[arg-type]
        found = verdict(request, [run])
        assert (found.outcome, found.reason) == (outcome, reason)
        assert is_bad(check_of(request), run)
    skipped = RunResult(number=0, nodes=request.nodes, skipped="accelerator_in_use")
    assert verdict(request, [skipped]).reason == "workload"
    assert not is_bad(check_of(request), skipped)
    assert verdict(request, []).outcome == "unknown"


def test_a_node_check_names_each_node_that_failed() -> None:
    request = CheckRequest(kind="node", nodes=("a", "b"))
    ok, bad = Report(outcome="ok"), failed("port_down", "port 1 is down")
    results = [
        RunResult(number=0, nodes=("a",), reports=(ok,)),
        RunResult(number=1, nodes=("b",), reports=(ok, bad)),
    ]
    assert subjects(verdict(request, results)) == [("hardware", "b")]
    assert verdict(request, [results[0]]).outcome == "unknown"


REPORTS = st.one_of(
    st.floats(allow_nan=True, allow_infinity=True).map(pair_report),
    st.floats(1e8, 1e11).map(pair_report),
    st.sampled_from(REASONS).map(lambda reason: failed(reason, "x")),
    st.just(Report(outcome="ok")),
)


@settings(deadline=None, max_examples=150)
@given(st.integers(2, 9), st.integers(1, 9), st.data(), st.randoms())
def test_the_order_of_the_results_changes_nothing(
    count: int, rounds: int, data: st.DataObject, order: random.Random
) -> None:
    request = matrix(names(count), rounds)
    runs = [
        RunResult(
            number=number,
            nodes=(one.source, one.target),
            reports=tuple(data.draw(st.lists(REPORTS, max_size=2))),
            skipped=data.draw(st.sampled_from(("", "", "", "job_marker", "no_answer"))),
        )
        for _, number, one in Plan(request).numbered()
    ]
    first = verdict(request, runs)
    order.shuffle(runs)
    assert verdict(request, [*runs, runs[0]]) == first
    twice = [*runs, msgspec.structs.replace(runs[0], skipped="lost"), runs[0]]
    again = verdict(request, twice)
    order.shuffle(twice)
    assert verdict(request, twice) == again
    failures = any(run.skipped or not run.reports for run in runs)
    assert not (failures and first.outcome == "ok")
    assert (first.outcome == "bad") == any(
        one.reason in ("hardware", "threshold") for one in first.findings
    )
    assert (first.reason is None) == (first.outcome == "ok")
    assert first.message.isprintable()


def test_nodes_whose_partners_fail_everywhere_are_not_named() -> None:
    lost = (failed("timeout", "x"),)
    pairs = [("a", "b", lost), ("b", "c", lost), ("a", "c", lost)]
    pairs += [("d", "e", (pair_report(RATE),)), ("d", "f", (pair_report(RATE),))]
    results = [
        RunResult(number=number, nodes=(one, other), reports=reports)
        for number, (one, other, reports) in enumerate(pairs)
    ]
    found = verdict(matrix("abcdef", 1), results)
    assert [one.subject for one in found.findings] == ["a - b", "a - c", "b - c"]


def test_a_node_that_lost_a_tenth_is_outside_the_spread_of_the_others() -> None:
    request = matrix(names(100), 12)
    fleet = Fleet(names(100), {"gpu-0033": 0.1}, seed=3)
    found = verdict(request, fleet.pairs(request))
    assert subjects(found) == [("threshold", "gpu-0033")]
    assert 0.87 < (found.findings[0].ratio or 0.0) < 0.93


def test_what_may_be_chance_is_no_finding() -> None:
    """In four rounds, some of 300 nodes meet other traffic each time."""
    request = matrix(names(300), 4)
    doubts = ""
    for seed in range(12):
        found = verdict(request, Fleet(names(300), shared=0.2, seed=seed).pairs(request))
        assert (found.outcome, found.findings) == ("unknown", ())
        doubts += found.message
    assert "slow by chance or not: gpu-" in doubts


def test_chance_of_hits() -> None:
    assert at_least(0, 4, 0.1) == pytest.approx(1)
    assert at_least(4, 4, 0.1) == pytest.approx(1e-4)
    assert at_least(3, 4, 0.1) == pytest.approx(4 * 1e-3 * 0.9 + 1e-4)
    assert 0 <= at_least(900, 1000, 0.02) < 1e-300


@pytest.mark.parametrize("shared", [0.0, 0.05, 0.1])
def test_slow_nodes_of_300_are_found_by_a_tournament_and_no_other(shared: float) -> None:
    """The short form of `python -m tests.bench isolation`."""
    request = matrix(names(300), 8)
    for seed in range(6):
        bad = random.Random(seed).choice(names(300))
        for loss in (0.3, 0.6):
            fleet = Fleet(names(300), {bad: loss}, shared=shared, seed=seed)
            found = verdict(request, fleet.pairs(request))
            assert [one.subject for one in found.findings if one.scope == "node"] == [bad]
        fleet = Fleet(names(300), shared=shared, seed=seed)
        found = verdict(request, fleet.pairs(request))
        assert [one for one in found.findings if one.scope == "node"] == []
