"""What a check of each kind does, and how long it may take."""

from __future__ import annotations

from typing import Optional

from nodevitals.checks.isolation import MAX_SECONDS
from nodevitals.checks.model import Check, Verdict
from nodevitals.hub import planning
from nodevitals.hub.collectives import isolate
from nodevitals.hub.execution import Execution
from nodevitals.hub.runners import Runner

MARGIN_SECONDS = 120.0


def limit_of(check: Check) -> float:
    """The longest time of a check; anew after a restart of the hub."""
    if check.request.limit_seconds is not None:
        return check.request.limit_seconds
    isolates = check.request.kind == "collective" and check.request.isolate
    # Twice its cost: other checks share the limit of pairs.
    return 2 * check.cost.seconds + MARGIN_SECONDS + (MAX_SECONDS if isolates else 0.0)


async def perform(check: Check, execution: Execution, runner: Runner) -> Optional[Verdict]:
    """Execute the runs. Returns what is known apart from their results: of nodes that cannot take
    part, or of the search for the reason of a bad collective.
    """
    runs = planning.plan(check.request)
    if check.request.kind != "collective":
        await execution.execute(runs)
        return None
    if not execution.has_begun(0):
        findings = tuple(await runner.findings(check))
        if findings:
            text = "; ".join(f"{one.subject}: {one.message}" for one in findings[:3])
            reason = findings[0].reason
            return Verdict(outcome="bad", reason=reason, message=text, findings=findings)
    [whole] = await execution.execute(runs)
    return await isolate(check, whole, execution.execute)
