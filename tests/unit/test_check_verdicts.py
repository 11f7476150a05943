"""Verdicts: which node, link or rail is bad, and what could not be told."""

from __future__ import annotations

import csv
import random
from collections.abc import Callable, Iterable

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nodevitals.checks.model import (
    Check,
    CheckDetail,
    CheckRequest,
    Requester,
    RunResult,
    TestRequest,
    Verdict,
)
from nodevitals.checks.requests.cost import cost
from nodevitals.checks.requests.rounds import Plan
from nodevitals.checks.verdicts.figures import median_of
from nodevitals.checks.verdicts.outliers import at_least
from nodevitals.checks.verdicts.tables import as_csv
from nodevitals.checks.verdicts.verdict import figures_of, is_bad, judge, to_repeat
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


def check_of(request: CheckRequest) -> Check:
    return Check(
        id="20260101-000000-abcdef",
        request=request,
        requester=Requester(trigger="rest"),
        cost=cost(request),
        created=0.0,
    )


def verdict(
    request: CheckRequest, results: Iterable[RunResult], baseline: float | None = None
) -> Verdict:
    return judge(check_of(request), list(results), baseline)


PORTS = (50e9, 50e9)
"""400 Gb/s on both sides."""


def measured(
    request: CheckRequest,
    rate: Callable[[str, str], object],
    ports: tuple[float, float] | None = None,
    first: int = 0,
) -> list[RunResult]:
    """Results of a plan: the rate of (source, target), a report, or why it was skipped."""
    results = []
    for _, number, one in Plan(request).numbered():
        value = rate(one.source, one.target)
        fields: dict[str, object] = {"skipped": value} if isinstance(value, str) else {}
        if isinstance(value, Report):
            fields["reports"] = (value,)
        elif isinstance(value, float):
            fields["reports"] = (pair_report(value),)
        fields |= {"number": first + number, "nodes": (one.source, one.target)}
        results.append(RunResult(**fields, ports_bytes_per_second=(ports,)))  # type: ignore[arg-type]
    return results


def subjects(found: Verdict) -> list[tuple[str, str]]:
    return [(one.reason, one.subject) for one in found.findings]


def pair(**changes: object) -> CheckRequest:
    fields = {"kind": "pair", "nodes": ("a", "b"), "test": matrix(names(2)).test, **changes}
    return CheckRequest(**fields)  # type: ignore[arg-type]


def with_sizes(request: CheckRequest, sizes: str) -> CheckRequest:
    return msgspec.structs.replace(request, test=msgspec.structs.replace(request.test, sizes=sizes))


def test_a_healthy_matrix_is_ok() -> None:
    request = matrix(names(8))
    found = verdict(request, Fleet(names(8)).pairs(request), baseline=RATE)
    assert found == Verdict(outcome="ok", message="no fault found")


NO_REFERENCE = "no reference: give --expected (expected_bytes_per_second)"


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
        check = msgspec.structs.replace(check_of(request), baseline_ok=False)
        same = judge(check, measured(request, lambda a, b: RATE), RATE)
        assert (same.outcome, same.reason) == ("unknown", "threshold")
        assert "100 % of the last like check, which had none either" in same.message
        slower = judge(check, measured(request, lambda a, b: RATE / 2), RATE)
        assert (slower.outcome, slower.reason) == ("bad", "threshold")


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
    found = judge(check_of(request), [whole], None, search.verdict())
    assert (found.outcome, subjects(found)) == ("bad", [("hardware", "gpu-0003")])
    everywhere, _ = isolate(request, lambda one: lost)
    found = judge(check_of(request), [whole], None, everywhere.verdict())
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
    assert is_bad(msgspec.structs.replace(check_of(request), baseline=RATE), half[0])
    assert not is_bad(check_of(request), half[0])
    isolation = Verdict(
        outcome="bad",
        reason="threshold",
        findings=verdict(
            matrix(names(4)), Fleet(names(4), {"gpu-0001": 0.5}).pairs(matrix(names(4)))
        ).findings,
    )
    found = judge(check_of(request), half, RATE, isolation)
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


EIGHT = ",".join(f"mlx5_{number}" for number in range(8))


def rails(
    rate: Callable[[str, str, str], float], count: int = 8, **changes: object
) -> tuple[CheckRequest, list[RunResult]]:
    """A check of eight devices, with the rate of (source, target, device)."""
    test = TestRequest(
        tool="perftest", operation="write_bw", device=EIGHT, sizes="1MiB", iterations=200
    )
    request = matrix(names(count), test=test, **changes)  # type: ignore[arg-type]
    results = [
        RunResult(
            number=number,
            nodes=(one.source, one.target),
            reports=tuple(
                pair_report(rate(one.source, one.target, device)) for device in EIGHT.split(",")
            ),
        )
        for _, number, one in Plan(request).numbered()
    ]
    return request, results


ONE = "gpu-0003"


@pytest.mark.parametrize("expected", [None, RATE])
@pytest.mark.parametrize(
    ("slow", "message", "scope"),
    [
        (
            lambda a, b, device: ONE in (a, b),
            "gpu-0003: 50 % of the {usual} (all 8 devices)",
            "node",
        ),
        (
            lambda a, b, device: ONE in (a, b) and device == "mlx5_5",
            "gpu-0003: 50 % of the {usual} (mlx5_5)",
            "node",
        ),
        (
            lambda a, b, device: a == ONE and device == "mlx5_5",
            "gpu-0003: 50 % of the {usual}, sending (mlx5_5)",
            "node",
        ),
        (
            lambda a, b, device: b == ONE,
            "gpu-0003: 50 % of the {usual}, receiving (all 8 devices)",
            "node",
        ),
        (
            lambda a, b, device: {a, b} == {ONE, "gpu-0004"} and device == "mlx5_5",
            "gpu-0003 - gpu-0004: 50 % of the {usual} (mlx5_5)",
            "link",
        ),
    ],
)
def test_what_is_slow_is_named_with_its_devices(
    slow: Callable[[str, str, str], bool], message: str, scope: str, expected: float | None
) -> None:
    request, results = rails(
        lambda *pair: RATE * (0.5 if slow(*pair) else 1.0), expected_bytes_per_second=expected
    )
    found = verdict(request, results)
    usual = "expected rate" if expected else "median"
    assert (found.outcome, found.message) == ("bad", message.format(usual=usual))
    (one,) = found.findings
    assert (one.scope, one.ratio) == (scope, 0.5)
    if scope == "node":
        assert {suspect.partition(", ")[0] for suspect in one.suspects} <= {
            f"port {device}" for device in EIGHT.split(",")
        }


@pytest.mark.parametrize(("expected", "usual"), [(None, "other rails"), (RATE, "expected rate")])
def test_a_rail_that_is_slow_on_all_nodes_is_one_finding(
    expected: float | None, usual: str
) -> None:
    request, results = rails(
        lambda a, b, device: RATE * (0.5 if device == "mlx5_5" else 1.0),
        expected_bytes_per_second=expected,
    )
    (found,) = verdict(request, results).findings
    assert (found.subject, found.scope, found.ratio) == ("mlx5_5", "rail", 0.5)
    assert usual in found.message


def test_all_links_that_are_slow_need_an_expectation() -> None:
    request, results = rails(lambda a, b, device: RATE / 2, expected_bytes_per_second=RATE)
    found = verdict(request, results)
    assert (found.outcome, len(found.findings)) == ("bad", 8)
    assert found.message.startswith("mlx5_0: 8 of 8 nodes: 50 % of the expected rate")
    request, results = rails(lambda a, b, device: RATE / 2)
    assert verdict(request, results).outcome == "unknown"


def test_a_rail_that_reaches_nobody_is_no_fault_of_the_request() -> None:
    request, results = rails(lambda a, b, device: RATE, expected_bytes_per_second=RATE)
    dead = [
        msgspec.structs.replace(
            run, reports=(*run.reports[:7], failed("unreachable", "Failed status 12: wr_id 0"))
        )
        for run in results
    ]
    found = verdict(request, dead)
    assert (found.outcome, subjects(found)) == ("bad", [("hardware", "mlx5_7")])


def test_each_series_is_compared_with_its_own_past() -> None:
    request, results = rails(
        lambda a, b, device: RATE * (0.5 if device in ("mlx5_0", "mlx5_1", "mlx5_2") else 1.0)
    )
    check = check_of(request)
    before = {f"write_bw {device}": RATE for device in EIGHT.split(",")}
    found = judge(msgspec.structs.replace(check, baselines=before), results, RATE)
    assert [one.subject for one in found.findings] == ["mlx5_0", "mlx5_1", "mlx5_2"]
    assert figures_of(check, results)["write_bw mlx5_2"] == RATE / 2


def test_a_slow_pcie_link_is_a_suspect_of_its_node() -> None:
    request, results = rails(lambda a, b, device: RATE * (0.5 if ONE in (a, b) else 1.0), 4)
    narrow = "PCIe 8.0 GT/s x8 of 32.0 GT/s x16"
    limited = [
        msgspec.structs.replace(
            run,
            port_limits=tuple(
                (narrow * (run.nodes[0] == ONE), narrow * (run.nodes[1] == ONE))
                for _ in run.reports
            ),
        )
        for run in results
    ]
    (found,) = verdict(request, limited).findings
    assert (found.subject, found.suspects[:2]) == (ONE, ("port mlx5_0", narrow))


def test_only_what_was_odd_is_repeated() -> None:
    """Of eight devices one: the others need no second test."""
    request, results = rails(
        lambda a, b, device: RATE * (0.5 if ONE in (a, b) and device == "mlx5_5" else 1.0), 4
    )
    check = check_of(request)
    repeats = to_repeat(check, results)
    assert len(repeats) == 6
    assert {repeat.series for repeat in repeats} == {("write_bw mlx5_5",)}

    def again(rate: float) -> list[RunResult]:
        return results + [
            RunResult(
                number=repeat.number,
                nodes=repeat.nodes,
                series=repeat.series,
                reports=(pair_report(rate),),
            )
            for repeat in repeats
        ]

    assert judge(check, again(RATE / 2)).message == "gpu-0003: 50 % of the median (mlx5_5)"
    well = judge(check, again(RATE))
    assert (well.outcome, well.findings) == ("unknown", ())
    lines = list(
        csv.DictReader(as_csv(CheckDetail(check=check, results=tuple(again(RATE)))).splitlines())
    )
    assert [line["device"] for line in lines[-6:]] == ["mlx5_5"] * 6
