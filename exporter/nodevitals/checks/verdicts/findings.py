"""Findings and doubts: the nodes or links that failed runs point to, and the verdict.

In: the failures of a check, its runs, and the findings of other modules. Out: Verdict, with the
gravest reason.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Literal, Optional

import msgspec

from nodevitals.checks.model import CheckRequest, NodeVerdict, Reason, Verdict
from nodevitals.checks.verdicts.figures import Failure

Scope = Literal["node", "link", "rail"]
MAX_FINDINGS = 200
GRAVITY: tuple[Reason, ...] = ("hardware", "threshold", "harness", "workload")
MOST = 0.75
# Where every test fails with one of these, the cause is the request or the tested network.
EVERYWHERE = ("no_device", "no_gid", "unreachable")


def gravest(findings: Iterable[NodeVerdict]) -> Sequence[NodeVerdict]:
    """The findings in the order of their reasons, the gravest first; nodes before links, then by
    name.
    """
    scopes = ("node", "rail", "link")
    return sorted(
        findings,
        key=lambda finding: (
            GRAVITY.index(finding.reason),
            scopes.index(finding.scope),
            finding.subject,
        ),
    )


class Judgement(msgspec.Struct):
    """The findings so far."""

    findings: list[NodeVerdict] = []
    doubts: list[tuple[Reason, str]] = []
    """Why the outcome is unknown."""
    notes: list[str] = []
    """What people may want to know."""
    lacking: str = ""
    """Which reference is missing to call it ok; it matters where nothing is bad."""
    measured: bool = False
    """Whether anything was measured."""
    unreachable: str = ""
    """Why no pair reached its partner, where that is so for all."""
    median: Optional[float] = None
    """The median speed of the pairs that are not slow."""
    slow_below: Optional[float] = None
    """The speed below which a pair is slow."""

    def verdict(self) -> Verdict:
        """The verdict that follows from the findings and doubts."""
        measured = self.measured
        if self.lacking and not self.findings and not self.doubts:
            self.doubts.append(("threshold", self.lacking))
        ordered = gravest(self.findings)
        bad = any(finding.reason in ("hardware", "threshold") for finding in ordered)
        well = measured and not ordered and not self.doubts
        reasons = [finding.reason for finding in ordered] + [reason for reason, _ in self.doubts]
        parts = [f"{finding.subject}: {finding.message}" for finding in ordered[:3]]
        if len(ordered) > 3:
            parts.append(f"{len(ordered) - 3} more findings")
        parts += [text for _, text in self.doubts]
        if not parts:
            parts = ["no fault found" if measured else "nothing was measured"]
        return Verdict(
            outcome="bad" if bad else "ok" if well else "unknown",
            reason=reasons[0] if reasons else None if well else "harness",
            message="; ".join([*parts, *self.notes]),
            findings=tuple(ordered[:MAX_FINDINGS]),
        )


def finding(
    subject: str,
    scope: Scope,
    reason: Reason,
    message: str,
    ratio: Optional[float] = None,
    suspects: tuple[str, ...] = (),
) -> NodeVerdict:
    """A finding, with its ratio rounded."""
    return NodeVerdict(
        subject=subject,
        scope=scope,
        reason=reason,
        message=message,
        ratio=None if ratio is None else round(ratio, 4),
        suspects=suspects,
    )


def percent(ratio: float) -> str:
    """For people: `41 %`."""
    return f"{100 * ratio:.0f} %"


def some(names: Sequence[str]) -> str:
    """The first names, and the number of the others."""
    more = f" and {len(names) - 8} more" if len(names) > 8 else ""
    return ", ".join(names[:8]) + more


def findings_of(
    request: CheckRequest, runs: Sequence[tuple[str, ...]], failures: Sequence[Failure]
) -> tuple[list[NodeVerdict], list[tuple[Reason, str]]]:
    """Findings and doubts. A node is named where nearly all of its tests failed and its partners
    reached others; otherwise the pair is named.
    """
    if request.kind == "node":
        return [
            _finding_of(request, failure.nodes, "node", [failure], 1) for failure in failures
        ], []
    if len(failures) == len(runs) and len({frozenset(nodes) for nodes in runs}) > 1:
        return _of_all(request, failures)
    failures = _in_context(runs, failures)
    blamed = _blamed(runs, failures)
    findings = [
        _finding_of(request, (node,), "node", own, total) for node, (own, total) in blamed.items()
    ]
    links: dict[frozenset[str], list[Failure]] = {}
    for failure in failures:
        if not blamed.keys() & set(failure.nodes):
            links.setdefault(frozenset(failure.nodes), []).append(failure)
    findings += [_finding_of(request, own[0].nodes, "link", own, 1) for own in links.values()]
    return findings, []


def _in_context(runs: Sequence[tuple[str, ...]], failures: Sequence[Failure]) -> Sequence[Failure]:
    """The failures. A missing GID is a fault of the node, not of the test, where other tests of one
    of the two nodes succeeded.
    """
    total = Counter(node for nodes in runs for node in nodes)
    failed = Counter(node for failure in failures for node in failure.nodes)
    well = {node for node, count in total.items() if failed[node] < count}
    return [
        msgspec.structs.replace(failure, cause="hardware")
        if failure.relative and well & set(failure.nodes)
        else failure
        for failure in failures
    ]


def _of_all(
    request: CheckRequest, failures: Sequence[Failure]
) -> tuple[list[NodeVerdict], list[tuple[Reason, str]]]:
    """Findings and doubts where all tests failed: no node can be named."""
    failure = min(failures, key=lambda failed: (GRAVITY.index(failed.cause), failed.text))
    text = f"all {len(failures)} tests failed: {failure.text}"
    if failure.cause in ("hardware", "threshold") and failure.reason not in EVERYWHERE:
        of_rail = _finding_of(request, (rail_of(request),), "rail", failures, 1)
        return [msgspec.structs.replace(of_rail, message=text)], []
    return [], [("workload" if failure.cause == "workload" else "harness", text)]


def _blamed(
    runs: Sequence[tuple[str, ...]], failures: Sequence[Failure]
) -> Mapping[str, tuple[list[Failure], int]]:
    """Nodes with their failures and the number of their runs."""
    total = Counter(node for nodes in runs for node in nodes)
    own: dict[str, list[Failure]] = {}
    for failure in failures:
        for node in failure.nodes:
            own.setdefault(node, []).append(failure)
    well = {node for node, count in total.items() if len(own.get(node, ())) < count}
    blamed = {}
    for node in sorted(own):
        partners = [other for failure in own[node] for other in failure.nodes if other != node]
        reach = sum(other in well for other in partners)
        if total[node] > 1 and len(own[node]) >= MOST * total[node] and 2 * reach >= len(partners):
            blamed[node] = (own[node], total[node])
    return blamed


def _finding_of(
    request: CheckRequest,
    subjects: Sequence[str],
    scope: Scope,
    failures: Sequence[Failure],
    runs: int,
) -> NodeVerdict:
    """The finding for the most frequent of the gravest failures."""
    cause = min((failure.cause for failure in failures), key=GRAVITY.index)
    of_cause = [failure for failure in failures if failure.cause == cause]
    reason = Counter(sorted(failure.reason for failure in of_cause)).most_common(1)[0][0]
    text = min(failure.text for failure in of_cause if failure.reason == reason)
    if runs > 1:
        text = f"{len(failures)} of {runs} tests failed: {text}"
    port = reason in ("no_device", "port_down") and request.test.device
    suspects = (port_of(request),) if port else ()
    return finding(" - ".join(subjects[:2]), scope, cause, text, suspects=suspects)


def port_of(request: CheckRequest) -> str:
    """`port mlx5_3`, with the port's number where that is not 1."""
    test = request.test
    return f"port {test.device}" if test.port == 1 else f"port {test.device}:{test.port}"


def rail_of(request: CheckRequest) -> str:
    """The device that is tested on all nodes."""
    return request.test.device or "all devices"
