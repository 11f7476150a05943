"""The verdict on a check: which nodes, links or rails are bad, and why.

In: the check and its results, in any order. Out: Verdict. Equal results give an equal verdict. The
verdict is never ok but `unknown`, unless something is bad, where something was not measured, or
where no reference shows how fast it should be (reference.py).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Optional

from msgspec.structs import replace

from nodevitals.checks.model import (
    Check,
    CheckRequest,
    NodeVerdict,
    RunResult,
    Verdict,
)
from nodevitals.checks.requests.runs import Series, request_of, results_of, series_of
from nodevitals.checks.verdicts import collectives, figures, reference, repetitions
from nodevitals.checks.verdicts.comparison import compare
from nodevitals.checks.verdicts.findings import EVERYWHERE, Judgement, findings_of
from nodevitals.checks.verdicts.rails import joined
from nodevitals.checks.verdicts.reference import NO_PAST, Past


def past_of(check: Check) -> Past:
    """What earlier checks and the hardware say that a check should reach."""
    return Past(check.baseline, check.baseline_ok, check.baselines, check.bus)


def judge(
    check: Check, results: Iterable[RunResult], isolation: Optional[Verdict] = None
) -> Verdict:
    """The verdict on an ended check; `isolation` is that of a collective's bisection."""
    return verdict_of(check.request, check.cost.runs, results, past_of(check), isolation)


def verdict_of(
    request: CheckRequest,
    planned: int,
    results: Iterable[RunResult],
    past: Past = NO_PAST,
    isolation: Optional[Verdict] = None,
) -> Verdict:
    """The verdict on a resolved request with this number of planned runs; further runs are
    repetitions (repetitions.py).
    """
    runs = figures.in_order(results)
    if request.kind == "collective":
        return _of_collective(request, runs, isolation, past)
    runs, repeated = repetitions.merged(request, planned, runs)
    if request.kind == "node":
        judgement = _of_failures(request, runs)
    else:
        parts = []
        for series, own in _by_series(request, runs):
            again = _numbers(repeated, series)
            of_series = request_of(request, series)
            parts.append((series, _of_series(of_series, own, again, past.of(series))))
        judgement = joined(request, parts)
    if len(runs) < planned:
        text = f"{planned - len(runs)} of {planned} tests did not run"
        judgement.doubts.insert(0, ("harness", text))
    return judgement.verdict()


def to_repeat(check: Check, results: Iterable[RunResult]) -> list[repetitions.Repetition]:
    """The repetitions that a verdict on these results needs."""
    request, planned = check.request, check.cost.runs
    runs = figures.in_order(results)
    if request.kind == "collective":
        return _collective_to_repeat(check, runs)
    if request.kind not in ("pair", "matrix"):
        return []
    best, repeated = repetitions.merged(request, planned, runs)
    odd: dict[int, list[str]] = {}
    for series, own in _by_series(request, best):
        of_series = request_of(request, series)
        again = _numbers(repeated, series)
        judgement = _as_measured(of_series, own, again, past_of(check).of(series))
        for number in _odd_runs(of_series, own, judgement):
            odd.setdefault(number, []).append(series.name)
    return repetitions.to_repeat(planned, runs, odd)


def figures_of(check: Check, results: Iterable[RunResult]) -> dict[str, float]:
    """The median of each series, by its name, with messages of the largest size."""
    request = check.request
    if request.kind not in ("pair", "matrix"):
        whole = figures.median_of(request, results)
        return {} if whole is None else {request.test.operation: whole}
    runs, _ = repetitions.merged(request, check.cost.runs, figures.in_order(results))
    medians = {
        series.name: figures.median_of(request_of(request, series), own)
        for series, own in _by_series(request, runs)
    }
    return {name: value for name, value in medians.items() if value is not None}


def _numbers(repeated: Iterable[tuple[int, str]], series: Series) -> set[int]:
    """The numbers of the runs of which this series was repeated."""
    return {number for number, name in repeated if name == series.name}


def _by_series(
    request: CheckRequest, runs: Sequence[RunResult]
) -> Iterable[tuple[Series, list[RunResult]]]:
    """The series of a check with their results."""
    return ((series, results_of(runs, series)) for series in series_of(request.test))


def _of_failures(request: CheckRequest, runs: Sequence[RunResult]) -> Judgement:
    failures = [
        failure for run in runs if (failure := figures.failure_of(run, request)) is not None
    ]
    findings, doubts = findings_of(request, [run.nodes for run in runs], failures)
    return Judgement(findings, doubts, measured=len(runs) > len(failures))


def _of_series(
    request: CheckRequest,
    runs: Sequence[RunResult],
    repeated: set[int],
    past: Past,
) -> Judgement:
    """The judgement on one operation between one device of each node. Where what was repeated was
    not odd again, what was not is no evidence either.
    """
    judgement = _as_measured(request, runs, repeated, past)
    odd = _odd_runs(request, runs, judgement) if repeated else set()
    if not odd or odd & repeated:
        return judgement
    others = [run for run in runs if run.number not in odd]
    judgement = _as_measured(request, others, repeated, past)
    text = f"{len(odd)} tests were slow or failed, and not those that were repeated: repeat all"
    judgement.doubts.append(("threshold", text))
    return judgement


def _as_measured(
    request: CheckRequest,
    runs: Sequence[RunResult],
    repeated: set[int],
    past: Past,
) -> Judgement:
    failures, others = [], []
    for run in runs:
        failure = figures.failure_of(run, request)
        if failure is not None:
            failures.append(failure)
        elif reference.is_far_below(request, run):
            again = ", also when it was repeated" if run.number in repeated else ""
            text = f"reached {reference.reached(request, run)}{again}"
            failures.append(figures.Failure(run.nodes, "hardware", "slow", text))
        else:
            others.append(run)
    findings, doubts = findings_of(request, [run.nodes for run in runs], failures)
    judgement = Judgement(findings, doubts, measured=len(runs) > len(failures))
    if len(runs) == len(failures) and {failure.reason for failure in failures} == {"unreachable"}:
        judgement.unreachable = f"all {len(runs)} tests failed: {failures[0].text}"
    compare(request, others, past.baseline, judgement)
    limits = _limits_of(request, runs)
    judgement.findings = [_with_limits(known, limits) for known in judgement.findings]
    judgement.lacking = reference.lacking(request, runs, past)
    return judgement


def _limits_of(request: CheckRequest, runs: Iterable[RunResult]) -> dict[str, str]:
    """What keeps the ports of nodes from their rate, by node."""
    place = figures.largest(request.test)
    return {
        name: text
        for run in runs
        for name, text in zip(run.nodes, figures.limits_at(run, place))
        if text
    }


def _with_limits(known: NodeVerdict, limits: Mapping[str, str]) -> NodeVerdict:
    names = known.subject.split(" - ") if known.scope != "rail" else ()
    texts = [
        limits[name] if len(names) == 1 else f"{name}: {limits[name]}"
        for name in names
        if name in limits
    ]
    return replace(known, suspects=(*known.suspects, *texts))


def _odd_runs(request: CheckRequest, runs: Sequence[RunResult], judgement: Judgement) -> set[int]:
    """Numbers of the runs that failed, or that make something look bad. Where all failed alike, the
    cause is no accident.
    """
    failed = [run for run in runs if figures.failure_of(run, request) is not None]
    odd = {run.number for run in failed if not run.skipped} if len(failed) < len(runs) else set()
    limit = judgement.slow_below or 0.0
    named = {name for found in judgement.findings for name in found.subject.split(" - ")}
    of_all = any(found.scope == "rail" for found in judgement.findings)
    for run in runs:
        figure = figures.at_size(run, request.test, figures.largest(request.test))
        if figure is None or not (of_all or named & set(run.nodes)):
            continue
        is_slow = figures.speed_of(figure, request.test) < limit
        if is_slow or reference.is_far_below(request, run):
            odd.add(run.number)
    return odd


def _collective_to_repeat(check: Check, runs: Sequence[RunResult]) -> list[repetitions.Repetition]:
    """A slow one, once; a bisection repeats it over groups."""
    whole = figures.of_all_nodes(check.request, runs)
    if len(whole) != 1 or figures.failure_of(whole[0], check.request) is not None:
        return []
    again = repetitions.Repetition(check.cost.runs, check.request.nodes, ())
    return [again] if is_bad(check, whole[0]) else []


def is_bad(check: Check, result: RunResult) -> bool:
    """Whether a collective failed or is slow, so that a bisection may find the cause."""
    failure = figures.failure_of(result, check.request)
    if failure is not None:
        return failure.cause != "workload" and not result.skipped
    return collectives.slow(check.request, result, past_of(check)) is not None


def healthy_figure(check: Check) -> Optional[float]:
    """The figure of a healthy collective, where nothing is expected of it."""
    return check.baseline or (check.bus.bytes_per_second if check.bus else None)


def _of_collective(
    request: CheckRequest, runs: Sequence[RunResult], isolation: Optional[Verdict], past: Past
) -> Verdict:
    """The verdict by the run over all nodes and the bisection that followed."""
    of_all_nodes = figures.of_all_nodes(request, runs)
    whole = of_all_nodes[0] if of_all_nodes else None
    judgement = Judgement()
    failure = None if whole is None else figures.failure_of(whole, request)
    if whole is None:
        judgement.doubts.append(("harness", "the collective did not run"))
    elif failure is not None and failure.reason in EVERYWHERE and _names_none(isolation):
        judgement.doubts.append(("harness", failure.text))
    elif failure is not None and failure.cause == "hardware":
        judgement.findings.append(collectives.finding_on(request, "hardware", failure.text))
    elif failure is not None:
        judgement.doubts.append((failure.cause, failure.text))
    elif (found := collectives.slow(request, whole, past)) is not None:
        again = ", also when it was repeated" if len(of_all_nodes) > 1 else ""
        judgement.findings.append(replace(found, message=found.message + again))
    else:
        judgement.lacking = collectives.lacking(request, whole, past)
    if isolation is not None and isolation.findings:
        judgement.notes += [
            f"all {len(request.nodes)} nodes: {of_all.message}" for of_all in judgement.findings
        ]
        judgement.findings = list(isolation.findings)
    elif isolation is not None:
        judgement.notes.append(isolation.message)
    judgement.measured = whole is not None and failure is None
    return judgement.verdict()


def _names_none(isolation: Optional[Verdict]) -> bool:
    """Whether there was a bisection, and all groups were equally good or bad."""
    return isolation is not None and not isolation.findings
