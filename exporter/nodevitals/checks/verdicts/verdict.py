"""The verdict on a check: which nodes, links or rails are bad, and why.

In: the check and its results, in any order. Out: Verdict. Equal results give an equal verdict. The
verdict is never ok but `unknown`, unless something is bad, where something was not measured, or
where no reference shows how fast it should be (reference.py).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Optional

from nodevitals.checks.model import Check, CheckRequest, RunResult, Verdict
from nodevitals.checks.requests.sizes import parse_sizes, spelled_size
from nodevitals.checks.verdicts import figures, outliers, reference
from nodevitals.checks.verdicts.findings import (
    EVERYWHERE,
    Judgement,
    finding,
    findings_of,
    percent,
    port_of,
    rail_of,
    some,
)
from nodevitals.probes.fabric.tools.report import LATENCY

MAX_SLOW_SHARE = 0.05
"""Where more of the pairs of nodes that are well are slow, the network is shared: no link is
named."""
MIN_SLOW_PAIRS = 4


def judge(
    check: Check,
    results: Iterable[RunResult],
    baseline: Optional[float] = None,
    isolation: Optional[Verdict] = None,
) -> Verdict:
    """The verdict on an ended check; `baseline` is the figure of the last equal check, `isolation`
    the verdict of a collective's bisection.
    """
    return verdict_of(
        check.request, check.cost.runs, results, baseline, isolation, check.baseline_ok
    )


def verdict_of(
    request: CheckRequest,
    planned: int,
    results: Iterable[RunResult],
    baseline: Optional[float] = None,
    isolation: Optional[Verdict] = None,
    baseline_ok: bool = True,
) -> Verdict:
    """The verdict on a resolved request with this number of planned runs; further runs are
    repetitions (reference.to_repeat). `baseline_ok`: the last equal check had a reference itself.
    """
    runs = figures.in_order(results)
    if request.kind == "collective":
        return _of_collective(request, runs, baseline, isolation, baseline_ok)
    runs, others, slow, unsettled = reference.settled(request, planned, runs)
    failures = [
        failure for run in runs if (failure := figures.failure_of(run, request)) is not None
    ]
    failures += slow
    findings, doubts = findings_of(request, [run.nodes for run in runs], failures)
    judgement = Judgement(findings, [*doubts, *(("threshold", text) for text in unsettled)])
    if request.kind != "node":
        _compare(request, others, baseline, judgement)
    if len(runs) < planned:
        text = f"{planned - len(runs)} of {planned} tests did not run"
        judgement.doubts.append(("harness", text))
    _doubt_without_reference(request, runs, baseline, baseline_ok, judgement)
    return judgement.verdict(measured=len(runs) > len(failures))


def _doubt_without_reference(
    request: CheckRequest,
    runs: Sequence[RunResult],
    baseline: Optional[float],
    baseline_ok: bool,
    judgement: Judgement,
) -> None:
    """Add a doubt where there is no finding, but no reference either."""
    if judgement.findings or judgement.doubts:
        return
    text = reference.lacking(request, runs, baseline, baseline_ok)
    if text:
        judgement.doubts.append(("threshold", text))


def is_bad(request: CheckRequest, result: RunResult, baseline: Optional[float]) -> bool:
    """Whether a collective failed or is slow, so that a bisection may find the cause."""
    failure = figures.failure_of(result, request)
    if failure is not None:
        return failure.cause != "workload" and not result.skipped
    return (_ratio(request, result, baseline) or 1.0) < request.share


def _ratio(request: CheckRequest, result: RunResult, baseline: Optional[float]) -> Optional[float]:
    figure = figures.at_size(result, request.test, figures.largest(request.test))
    usual = request.expected_bytes_per_second or baseline
    return figure / usual if figure and usual else None


def _of_collective(
    request: CheckRequest,
    runs: Sequence[RunResult],
    baseline: Optional[float],
    isolation: Optional[Verdict],
    baseline_ok: bool,
) -> Verdict:
    """The verdict by the run over all nodes and the bisection that followed."""
    whole = next((run for run in runs if set(run.nodes) == set(request.nodes)), None)
    judgement = Judgement()
    failure = None if whole is None else figures.failure_of(whole, request)
    if whole is None:
        judgement.doubts.append(("harness", "the collective did not run"))
    elif failure is not None and failure.reason in EVERYWHERE and _names_none(isolation):
        judgement.doubts.append(("harness", failure.text))
    elif failure is not None and failure.cause == "hardware":
        judgement.findings.append(finding(rail_of(request), "rail", "hardware", failure.text))
    elif failure is not None:
        judgement.doubts.append((failure.cause, failure.text))
    else:
        ratio = _ratio(request, whole, baseline)
        what = "expected rate" if request.expected_bytes_per_second else "last check's"
        if ratio is not None and ratio < request.share:
            text = f"{percent(ratio)} of the {what}"
            judgement.findings.append(finding(rail_of(request), "rail", "threshold", text, ratio))
        _doubt_without_reference(request, [whole], baseline, baseline_ok, judgement)
    if isolation is not None and isolation.findings:
        judgement.notes += [
            f"all {len(request.nodes)} nodes: {of_all.message}" for of_all in judgement.findings
        ]
        judgement.findings = list(isolation.findings)
    elif isolation is not None:
        judgement.notes.append(isolation.message)
    return judgement.verdict(measured=whole is not None and failure is None)


def _names_none(isolation: Optional[Verdict]) -> bool:
    """Whether there was a bisection, and all groups were equally good or bad."""
    return isolation is not None and not isolation.findings


def _compare(
    request: CheckRequest,
    runs: Sequence[RunResult],
    baseline: Optional[float],
    judgement: Judgement,
) -> None:
    """Add the nodes and pairs that are slow with messages of the largest size."""
    test, place = request.test, figures.largest(request.test)
    expected = request.expected_bytes_per_second
    last = None if baseline is None else figures.speed_of(baseline, test)
    measured = _measured(request, runs, place)
    if len(measured) == 1:
        _compare_one(request, measured[0], expected or last, judgement)
        return
    directed = test.operation not in LATENCY
    outlying = outliers.find(measured, request.share, expected, directed)
    if outlying is None:
        return
    sizes = parse_sizes(test.sizes)
    at = f" with {spelled_size(sizes[-1])}" if len(sizes) > 1 else ""
    usual = "expected rate" if expected else "median"
    named = {known.subject for known in judgement.findings if known.scope == "node"}
    for node in outlying.nodes:
        if node.name not in named:
            way = f", {node.direction}" if node.direction else ""
            suspects = (f"{port_of(request)}{way}",) if test.device else ()
            text = f"{percent(node.ratio)} of the {usual}{at}{way}"
            judgement.findings.append(
                finding(node.name, "node", "threshold", text, node.ratio, suspects)
            )
    _add_slow_pairs(request, outlying, usual, judgement)
    if not expected and last and outlying.usual < request.share * last:
        ratio = outlying.usual / last
        text = f"the median is {percent(ratio)} of the last check's"
        judgement.findings.append(finding(rail_of(request), "rail", "threshold", text, ratio))
    _note_smaller_sizes(request, runs, {node.name for node in outlying.nodes}, judgement)


def _measured(
    request: CheckRequest, runs: Iterable[RunResult], place: int
) -> list[outliers.Measured]:
    """The speeds of pairs; in a read, the target sends the data."""
    measured = []
    for run in runs:
        figure = figures.at_size(run, request.test, place)
        if figure is not None and len(run.nodes) == 2:
            sender, receiver = run.nodes
            if request.test.operation.startswith("read"):
                sender, receiver = receiver, sender
            speed = figures.speed_of(figure, request.test)
            measured.append(outliers.Measured(sender, receiver, speed))
    return measured


def _compare_one(
    request: CheckRequest,
    measured: outliers.Measured,
    usual: Optional[float],
    judgement: Judgement,
) -> None:
    if usual is not None and measured.speed < request.share * usual:
        ratio = measured.speed / usual
        what = "expected rate" if request.expected_bytes_per_second else "last check"
        subject = " - ".join(request.nodes)
        text = f"{percent(ratio)} of the {what}"
        judgement.findings.append(finding(subject, "link", "threshold", text, ratio))


def _add_slow_pairs(
    request: CheckRequest, outlying: outliers.Found, usual: str, judgement: Judgement
) -> None:
    slow = outlying.pairs
    if len(slow) >= MIN_SLOW_PAIRS and len(slow) > MAX_SLOW_SHARE * outlying.well:
        text = (
            f"{len(slow)} of {outlying.well} pairs of nodes that are not slow themselves are slow"
        )
        if request.expected_bytes_per_second:
            judgement.findings.append(finding(rail_of(request), "rail", "threshold", text, None))
            return
        advice = "other traffic, or paths between groups: repeat it, with more rounds"
        judgement.doubts.append(("threshold", f"{text}: {advice}"))
        if outlying.unproven:
            judgement.doubts.append(
                ("threshold", f"slow by chance or not: {some(outlying.unproven)}")
            )
        return
    for pair in slow:
        subject = f"{pair.sender} - {pair.receiver}"
        text = f"{percent(pair.ratio)} of the {usual}"
        judgement.findings.append(finding(subject, "link", "threshold", text, pair.ratio))


def _note_smaller_sizes(
    request: CheckRequest, runs: Sequence[RunResult], slow: set[str], judgement: Judgement
) -> None:
    """Add a note, not a finding, on nodes that are slow only with smaller messages."""
    sizes = parse_sizes(request.test.sizes)
    directed = request.test.operation not in LATENCY
    for place, size in enumerate(sizes[:-1]):
        measured = _measured(request, runs, place)
        slower = outliers.find(measured, request.share, None, directed)
        others = [node.name for node in slower.nodes if node.name not in slow] if slower else []
        if others:
            judgement.notes.append(f"slow with {spelled_size(size)} only: {some(others)}")
