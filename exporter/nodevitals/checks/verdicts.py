"""The verdict on a check: which nodes, links or rails are bad, and why.

In: the check and its results, in any order. Out: Verdict. The same results give the same verdict.
What was not measured is never well: it is `unknown`, unless something else is bad.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Optional

import msgspec

from nodevitals.checks import figures, outliers
from nodevitals.checks.failures import findings_of, gravest, port_of, rail_of
from nodevitals.checks.model import Check, CheckRequest, NodeVerdict, Reason, RunResult, Verdict
from nodevitals.checks.sweep import parse_sizes, spelled_size
from nodevitals.probes.fabric.report import LATENCY

MAX_FINDINGS = 200
MAX_SLOW_SHARE = 0.05
"""Where more of the pairs of nodes that are well are slow, the network is shared: no link is
named."""
MIN_SLOW_PAIRS = 4


class Judgement(msgspec.Struct):
    """What is found so far."""

    findings: list[NodeVerdict] = []
    doubts: list[tuple[Reason, str]] = []
    """Why the check could not tell."""
    notes: list[str] = []
    """What people may want to know."""

    def verdict(self, measured: bool) -> Verdict:
        """All of it as one verdict."""
        ordered = gravest(self.findings)
        bad = any(one.reason in ("hardware", "threshold") for one in ordered)
        well = measured and not ordered and not self.doubts
        reasons = [one.reason for one in ordered] + [reason for reason, _ in self.doubts]
        parts = [f"{one.subject}: {one.message}" for one in ordered[:3]]
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


def judge(check: Check, results: Iterable[RunResult], baseline: Optional[float] = None) -> Verdict:
    """The verdict on a check that has ended; `baseline` is the figure of the last like it."""
    return verdict_of(check.request, check.cost.runs, results, baseline)


def verdict_of(
    request: CheckRequest,
    planned: int,
    results: Iterable[RunResult],
    baseline: Optional[float] = None,
) -> Verdict:
    """The same, for a resolved request of so many planned runs."""
    runs = figures.in_order(results)
    failures = [one for run in runs if (one := figures.failure_of(run, request)) is not None]
    findings, doubts = findings_of(request, [run.nodes for run in runs], failures)
    judgement = Judgement(findings, doubts)
    if request.kind != "node":
        _compare(request, runs, baseline, judgement)
    if len(runs) < planned:
        text = f"{planned - len(runs)} of {planned} tests did not run"
        judgement.doubts.append(("harness", text))
    return judgement.verdict(measured=len(runs) > len(failures))


def _compare(
    request: CheckRequest,
    runs: Sequence[RunResult],
    baseline: Optional[float],
    judgement: Judgement,
) -> None:
    """Add what is slow with messages of the largest size."""
    test, place = request.test, figures.largest(request.test)
    expected = request.expected_bytes_per_second
    last = None if baseline is None else figures.speed_of(baseline, test)
    measured = _measured(request, runs, place)
    if len(measured) == 1:
        _compare_one(request, measured[0], expected or last, judgement)
        return
    directed = test.operation not in LATENCY
    found = outliers.find(measured, request.share, expected, directed)
    if found is None:
        return
    sizes = parse_sizes(test.sizes)
    at = f" with {spelled_size(sizes[-1])}" if len(sizes) > 1 else ""
    usual = "expected rate" if expected else "median"
    named = {one.subject for one in judgement.findings if one.scope == "node"}
    for node in found.nodes:
        if node.name not in named:
            way = f", {node.direction}" if node.direction else ""
            suspects = (f"{port_of(request)}{way}",) if test.device else ()
            text = f"{_percent(node.ratio)} of the {usual}{at}{way}"
            judgement.findings.append(_threshold(node.name, "node", text, node.ratio, suspects))
    _add_slow_pairs(request, found, usual, judgement)
    if not expected and last and found.usual < request.share * last:
        ratio = found.usual / last
        text = f"the median is {_percent(ratio)} of the last check's"
        judgement.findings.append(_threshold(rail_of(request), "rail", text, ratio))
    _note_smaller_sizes(request, runs, {node.name for node in found.nodes}, judgement)


def _measured(
    request: CheckRequest, runs: Iterable[RunResult], place: int
) -> list[outliers.Measured]:
    """The speeds of pairs; of a read, the data comes from the target."""
    found = []
    for run in runs:
        figure = figures.at_size(run, request.test, place)
        if figure is not None and len(run.nodes) == 2:
            sender, receiver = run.nodes
            if request.test.operation.startswith("read"):
                sender, receiver = receiver, sender
            speed = figures.speed_of(figure, request.test)
            found.append(outliers.Measured(sender, receiver, speed))
    return found


def _compare_one(
    request: CheckRequest,
    one: outliers.Measured,
    reference: Optional[float],
    judgement: Judgement,
) -> None:
    if reference is None:
        judgement.notes.append("there is nothing to compare it with")
    elif one.speed < request.share * reference:
        ratio = one.speed / reference
        what = "expected rate" if request.expected_bytes_per_second else "last check"
        subject = " - ".join(request.nodes)
        text = f"{_percent(ratio)} of the {what}"
        judgement.findings.append(_threshold(subject, "link", text, ratio))


def _add_slow_pairs(
    request: CheckRequest, found: outliers.Found, usual: str, judgement: Judgement
) -> None:
    slow = found.pairs
    if len(slow) >= MIN_SLOW_PAIRS and len(slow) > MAX_SLOW_SHARE * found.well:
        text = f"{len(slow)} of {found.well} pairs of nodes that are not slow themselves are slow"
        if request.expected_bytes_per_second:
            judgement.findings.append(_threshold(rail_of(request), "rail", text, None))
            return
        advice = "the network was in use, or paths between groups are: repeat within a group"
        judgement.doubts.append(("threshold", f"{text}: {advice}"))
        return
    for pair in slow:
        subject = f"{pair.sender} - {pair.receiver}"
        text = f"{_percent(pair.ratio)} of the {usual}"
        judgement.findings.append(_threshold(subject, "link", text, pair.ratio))


def _note_smaller_sizes(
    request: CheckRequest, runs: Sequence[RunResult], slow: set[str], judgement: Judgement
) -> None:
    """Nodes that are slow with smaller messages only are worth a note, and no finding."""
    sizes = parse_sizes(request.test.sizes)
    directed = request.test.operation not in LATENCY
    for place, size in enumerate(sizes[:-1]):
        measured = _measured(request, runs, place)
        found = outliers.find(measured, request.share, None, directed)
        others = [one.name for one in found.nodes if one.name not in slow] if found else []
        if others:
            names = ", ".join(others[:3]) + (f" and {len(others) - 3} more" * (len(others) > 3))
            judgement.notes.append(f"slow with {spelled_size(size)} only: {names}")


def _threshold(
    subject: str, scope: str, message: str, ratio: Optional[float], suspects: tuple[str, ...] = ()
) -> NodeVerdict:
    return NodeVerdict(
        subject=subject,
        scope="node" if scope == "node" else "rail" if scope == "rail" else "link",
        reason="threshold",
        message=message,
        ratio=None if ratio is None else round(ratio, 4),
        suspects=suspects,
    )


def _percent(ratio: float) -> str:
    return f"{100 * ratio:.0f} %"
