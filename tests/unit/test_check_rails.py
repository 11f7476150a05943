"""Verdicts on checks of several devices of each node."""

from __future__ import annotations

import csv
from collections.abc import Callable

import msgspec
import pytest

from nodevitals.checks.model import CheckDetail, CheckRequest, RunResult, TestRequest
from nodevitals.checks.requests.rounds import Plan
from nodevitals.checks.verdicts.tables import as_csv
from nodevitals.checks.verdicts.verdict import figures_of, judge, to_repeat
from nodevitals.probes.fabric.tools.report import failed
from testbed.slowfleet import RATE, matrix, names, pair_report
from testbed.verdicts import check_of, subjects, verdict

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
    before = {f"write_bw {device}": RATE for device in EIGHT.split(",")}
    check = check_of(request, baseline=RATE, baselines=before)
    found = judge(check, results)
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
