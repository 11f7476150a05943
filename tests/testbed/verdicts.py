"""Checks, results and verdicts for the tests of verdicts."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import msgspec

from nodevitals.checks.model import Check, CheckRequest, Requester, RunResult, Verdict
from nodevitals.checks.requests.cost import cost
from nodevitals.checks.requests.rounds import Plan
from nodevitals.checks.verdicts.verdict import judge
from nodevitals.probes.fabric.tools.report import Report
from testbed.slowfleet import matrix, names, pair_report

PORTS = (50e9, 50e9)
"""400 Gb/s on both sides."""
NO_REFERENCE = "no reference: give --expected (expected_bytes_per_second)"


def check_of(request: CheckRequest, **changes: object) -> Check:
    check = Check(
        id="20260101-000000-abcdef",
        request=request,
        requester=Requester(trigger="rest"),
        cost=cost(request),
        created=0.0,
    )
    return msgspec.structs.replace(check, **changes)


def verdict(
    request: CheckRequest, results: Iterable[RunResult], baseline: float | None = None
) -> Verdict:
    return judge(check_of(request, baseline=baseline), list(results))


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
