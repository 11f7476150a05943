"""The procedure of a check by its kind, and its time limit."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence

from nodevitals.checks.isolation.bisection import MAX_SECONDS, Bisection, request_of, state_of
from nodevitals.checks.model import Check, RunResult, Verdict
from nodevitals.checks.verdicts.figures import at_size, largest
from nodevitals.checks.verdicts.verdict import healthy_figure, is_bad
from nodevitals_hub.checks import planning
from nodevitals_hub.checks.execution import Execution
from nodevitals_hub.checks.runners import PlannedRun, Runner
from nodevitals_hub.store.check_store import Unfinished

MARGIN_SECONDS = 120.0
RESUME_SECONDS = 5.0


def limit_of(check: Check) -> float:
    """The longest time of a check."""
    if check.request.limit_seconds is not None:
        return check.request.limit_seconds
    isolates = check.request.kind == "collective" and check.request.isolate
    # Twice its cost: other checks share the limit of pairs.
    return 2 * check.cost.seconds + MARGIN_SECONDS + (MAX_SECONDS if isolates else 0.0)


def left_of(unfinished: Unfinished, now: float) -> float:
    """The seconds left of the limit, at a time in seconds since the epoch. A check that an earlier
    hub started always has some seconds left, in which its old runs are ended or their results
    collected. If the clock was set back since then, the latest stored time counts.
    """
    check = unfinished.check
    limit, started = limit_of(check), check.started if check.started is not None else now
    known = [issued.time for issued in unfinished.issued]
    known += [result.started + result.seconds for result in unfinished.results]
    return max(limit - (max(now, *known, started) - started), min(limit, RESUME_SECONDS))


async def perform(check: Check, execution: Execution, runner: Runner) -> Verdict | None:
    """Execute the runs. Returns a verdict that does not come from their results: about nodes that
    cannot take part, or from the search for the cause of a bad collective.
    """
    runs = planning.plan(check.request)
    if check.request.kind != "collective":
        await execution.execute(runs)
        await _repeat(check, execution)
        return None
    if not execution.has_begun(0):
        findings = tuple(await runner.findings(check))
        if findings:
            text = "; ".join(f"{finding.subject}: {finding.message}" for finding in findings[:3])
            reason = findings[0].reason
            return Verdict(outcome="bad", reason=reason, message=text, findings=findings)
    [whole] = await execution.execute(runs)
    if check.request.isolate and len(check.request.nodes) > 1:
        return await isolate(check, whole, execution.execute)
    await _repeat(check, execution)
    return None


async def _repeat(check: Check, execution: Execution) -> None:
    """Execute again, one after the other, what a verdict must not rest on alone."""
    while repeats := await _repetitions(check, execution):
        for run in repeats:
            await execution.execute([run])


async def _repetitions(check: Check, execution: Execution) -> Sequence[PlannedRun]:
    results = tuple(execution.results.values())
    # In a thread: a verdict over 10,000 nodes takes one or two seconds.
    return await asyncio.to_thread(planning.repetitions, check, results)


async def isolate(
    check: Check,
    whole: RunResult,
    execute: Callable[[Sequence[PlannedRun]], Awaitable[Sequence[RunResult]]],
) -> Verdict | None:
    """Search for the cause of a bad collective over all nodes; None where it was not bad.
    `execute` returns the stored result of a run that was executed before.
    """
    request = check.request
    if not is_bad(check, whole):
        return None
    figure = at_size(whole, request.test, largest(request.test))
    bisection = Bisection(state_of(request, healthy_figure(check), whole.rails, whole=figure))
    number = whole.number + 1
    while batch := bisection.next():
        runs = []
        for group in batch:
            of_group = request_of(request, group)
            runs.append(PlannedRun(number=number, nodes=of_group.nodes, test=of_group.test))
            number += 1
        bisection.feed(await execute(runs))
    return bisection.verdict()
