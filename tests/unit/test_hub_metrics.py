"""The hub's /metrics: figures, baselines and outcomes of checks, within bounds."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nodevitals.checks.model import (
    Check,
    CheckDetail,
    CheckRequest,
    Cost,
    NodeVerdict,
    Requester,
    RunResult,
    TestRequest,
    Verdict,
)
from nodevitals.families import Family
from nodevitals.probes.fabric.tools.report import Report, ResultRow, failed
from nodevitals_hub import families
from nodevitals_hub.checks.newest import MAX_FINDINGS, MAX_KEYS, MAX_SIZES, NewestChecks

COST = Cost(nodes=2, runs=1, node_seconds=1, seconds=1, bytes=1)
OK = Verdict(outcome="ok")


def detail(
    *rates: float,
    verdict: Verdict | None = OK,
    where: dict[str, str] | None = None,
    size: int = 1 << 20,
    phase: Any = "done",
    **test: Any,
) -> CheckDetail:
    """Return an ended collective, with a run for each bus bandwidth."""
    asked = TestRequest(tool="nccl", operation="all_reduce", **test)
    pool = {"pool": "train"} if where is None else where
    request = CheckRequest(kind="collective", where=pool, test=asked)
    check = Check(
        id="20260101-000000-abcdef",
        request=request,
        requester=Requester(trigger="rest"),
        cost=COST,
        created=100.0,
        phase=phase,
        started=110.0,
        ended=130.0,
        verdict=verdict,
    )
    results = tuple(
        RunResult(number=number, nodes=("a", "b"), reports=(_report(rate, size),))
        for number, rate in enumerate(rates)
    )
    return CheckDetail(check=check, results=results)


def _report(rate: float, size: int) -> Report:
    row = ResultRow(
        message_bytes=size,
        bandwidth_bytes_per_second=rate / 2,
        bus_bandwidth_bytes_per_second=rate,
    )
    return Report(outcome="ok", rows=(row,))


def values(newest: NewestChecks, family: Family) -> dict[tuple[str, ...], float]:
    """Return the samples of a family; each fits its declaration, and comes once."""
    found: dict[tuple[str, ...], float] = {}
    for one, labels, value in newest.samples():
        assert one.accepts(tuple(labels)), (one.name, labels)
        if one is family:
            assert tuple(labels) not in found
            found[tuple(labels)] = value
    return found


def single(newest: NewestChecks, family: Family) -> float:
    (value,) = values(newest, family).values()
    return value


def test_median_of_a_check_and_of_the_eight_before_it() -> None:
    newest = NewestChecks()
    newest.take(detail(300.0, 100.0, 200.0))
    labels = ("train", "nccl", "all_reduce", "", "collective", "1048576")
    assert values(newest, families.BANDWIDTH) == {labels: 200.0}
    assert values(newest, families.BANDWIDTH_BASELINE) == {}
    for rate in (1000.0, *[210.0] * 4, *[220.0] * 4):
        newest.take(detail(rate))
    newest.take(detail(50.0))
    assert single(newest, families.BANDWIDTH) == 50.0
    assert single(newest, families.BANDWIDTH_BASELINE) == 215.0
    assert single(newest, families.END) == 130.0
    assert single(newest, families.DURATION) == 20.0


def test_check_without_a_figure_leaves_the_baseline_alone() -> None:
    newest = NewestChecks()
    newest.take(detail(200.0))
    bad = Verdict(outcome="unknown", reason="harness")
    newest.take(detail(verdict=bad))
    assert values(newest, families.BANDWIDTH) == {}
    assert single(newest, families.BANDWIDTH_BASELINE) == 200.0
    (outcome,) = values(newest, families.OUTCOME)
    assert outcome[-2:] == ("unknown", "harness")
    newest.take(detail(100.0))
    assert single(newest, families.BANDWIDTH_BASELINE) == 200.0


def test_failed_report_has_no_figure() -> None:
    row = ResultRow(message_bytes=8, bus_bandwidth_bytes_per_second=1.0)
    result = RunResult(number=0, nodes=("a",), reports=(failed("timeout", "late", [row]),))
    newest = NewestChecks()
    newest.take(CheckDetail(check=detail().check, results=(result,)))
    assert values(newest, families.BANDWIDTH) == {}


def test_canceled_check_is_counted_and_changes_nothing_else() -> None:
    newest = NewestChecks()
    newest.take(detail(200.0))
    newest.take(detail(1.0, phase="canceled", verdict=None))
    assert single(newest, families.BANDWIDTH) == 200.0
    assert values(newest, families.ENDED)["collective", "canceled", ""] == 1


def test_counters_are_there_from_the_start_and_what_was_remembered_is_not_counted() -> None:
    newest = NewestChecks()
    assert set(values(newest, families.ENDED).values()) == {0}
    assert ("matrix", "unknown", "harness") in values(newest, families.ENDED)
    newest.take(detail(200.0), count=False)
    assert values(newest, families.ENDED)["collective", "ok", ""] == 0
    newest.take(detail(200.0))
    assert values(newest, families.ENDED)["collective", "ok", ""] == 1


@pytest.mark.parametrize(
    ("where", "pool"),
    [
        ({}, ""),
        ({"pool": "train"}, "train"),
        ({"leaf": "a", "pool": "train"}, "leaf=a,pool=train"),
        ({"leaf": "x" * 200}, "leaf=" + "x" * 59),
    ],
)
def test_pool_is_how_the_nodes_were_chosen(where: dict[str, str], pool: str) -> None:
    newest = NewestChecks()
    newest.take(detail(1.0, where=where))
    (labels,) = values(newest, families.END)
    assert labels[0] == pool


def test_number_of_series_is_bounded() -> None:
    newest = NewestChecks()
    findings = tuple(
        NodeVerdict(
            subject=f"gpu-{number}", scope="node", reason="threshold", message="", ratio=0.4
        )
        for number in range(100)
    )
    bad = Verdict(outcome="bad", reason="threshold", findings=(*findings, findings[0]))
    results = tuple(
        RunResult(number=size, nodes=("a",), reports=(_report(1.0, 2**20 + size),))
        for size in range(100)
    )
    for number in range(MAX_KEYS + 20):
        check = detail(verdict=bad, where={"pool": f"p{number}"}).check
        newest.take(CheckDetail(check=check, results=results))
    assert len(values(newest, families.OUTCOME)) == MAX_KEYS
    assert len(values(newest, families.BANDWIDTH)) == MAX_KEYS * MAX_SIZES
    assert len(values(newest, families.FINDING)) == MAX_KEYS * MAX_FINDINGS
    pools = {labels[0] for labels in values(newest, families.OUTCOME)}
    assert "p0" not in pools
    assert f"p{MAX_KEYS + 19}" in pools


@settings(deadline=None, max_examples=50)
@given(st.lists(st.lists(st.floats(0, 1e15), max_size=3), max_size=12))
def test_any_checks_give_samples_that_fit(checks: list[list[float]]) -> None:
    newest = NewestChecks()
    for rates in checks:
        newest.take(detail(*rates))
    values(newest, families.BANDWIDTH)
