"""Runs that failed: which node or link they point to.

In: the failures of a check, and its runs. Out: findings, and why the check could not
tell.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Literal

import msgspec

from nodevitals.checks.figures import Failure
from nodevitals.checks.judgement import GRAVITY
from nodevitals.checks.model import CheckRequest, NodeVerdict, Reason

MOST = 0.75
# Where each test fails with these, the request is at fault, or the network of the tests.
EVERYWHERE = ("no_device", "no_gid", "unreachable")


def findings_of(
    request: CheckRequest, runs: Sequence[tuple[str, ...]], failures: Sequence[Failure]
) -> tuple[list[NodeVerdict], list[tuple[Reason, str]]]:
    """Findings and doubts. A node is named where nearly all of its tests failed, while its partners
    reach others; otherwise the pair is.
    """
    if request.kind == "node":
        return [_finding(request, one.nodes, "node", [one], 1) for one in failures], []
    if len(failures) == len(runs) > 1:
        return _of_all(request, failures)
    failures = _in_context(runs, failures)
    blamed = _blamed(runs, failures)
    found = [
        _finding(request, (node,), "node", own, total) for node, (own, total) in blamed.items()
    ]
    for one in failures:
        if not blamed.keys() & set(one.nodes):
            found.append(_finding(request, one.nodes, "link", [one], 1))
    return found, []


def _in_context(runs: Sequence[tuple[str, ...]], failures: Sequence[Failure]) -> Sequence[Failure]:
    """Where other tests of one of both nodes succeed, a missing GID is a fault of a node, and none
    of the test.
    """
    total = Counter(node for nodes in runs for node in nodes)
    failed = Counter(node for one in failures for node in one.nodes)
    well = {node for node, count in total.items() if failed[node] < count}
    return [
        msgspec.structs.replace(one, cause="hardware")
        if one.relative and well & set(one.nodes)
        else one
        for one in failures
    ]


def _of_all(
    request: CheckRequest, failures: Sequence[Failure]
) -> tuple[list[NodeVerdict], list[tuple[Reason, str]]]:
    """All tests failed, which names no node."""
    one = min(failures, key=lambda one: (GRAVITY.index(one.cause), one.text))
    text = f"all {len(failures)} tests failed: {one.text}"
    if one.cause in ("hardware", "threshold") and one.reason not in EVERYWHERE:
        finding = _finding(request, (rail_of(request),), "rail", failures, 1)
        return [msgspec.structs.replace(finding, message=text)], []
    return [], [("workload" if one.cause == "workload" else "harness", text)]


def _blamed(
    runs: Sequence[tuple[str, ...]], failures: Sequence[Failure]
) -> Mapping[str, tuple[list[Failure], int]]:
    """Nodes with their failures and the number of their runs."""
    total = Counter(node for nodes in runs for node in nodes)
    own: dict[str, list[Failure]] = {}
    for one in failures:
        for node in one.nodes:
            own.setdefault(node, []).append(one)
    well = {node for node, count in total.items() if len(own.get(node, ())) < count}
    found = {}
    for node in sorted(own):
        partners = [other for one in own[node] for other in one.nodes if other != node]
        reach = sum(other in well for other in partners)
        if total[node] > 1 and len(own[node]) >= MOST * total[node] and 2 * reach >= len(partners):
            found[node] = (own[node], total[node])
    return found


def _finding(
    request: CheckRequest,
    subjects: Sequence[str],
    scope: Literal["node", "link", "rail"],
    failures: Sequence[Failure],
    runs: int,
) -> NodeVerdict:
    """The most frequent of the gravest failures, in words."""
    cause = min((one.cause for one in failures), key=GRAVITY.index)
    of_cause = [one for one in failures if one.cause == cause]
    reason = Counter(sorted(one.reason for one in of_cause)).most_common(1)[0][0]
    text = min(one.text for one in of_cause if one.reason == reason)
    if runs > 1:
        text = f"{len(failures)} of {runs} tests failed: {text}"
    port = reason in ("no_device", "port_down") and request.test.device
    return NodeVerdict(
        subject=" - ".join(subjects[:2]),
        scope=scope,
        reason=cause,
        message=text,
        suspects=(port_of(request),) if port else (),
    )


def port_of(request: CheckRequest) -> str:
    """`port mlx5_3`; with its number where it is not the first."""
    test = request.test
    return f"port {test.device}" if test.port == 1 else f"port {test.device}:{test.port}"


def rail_of(request: CheckRequest) -> str:
    """The device of all nodes."""
    return request.test.device or "all devices"
