"""Runs collectives through a launcher, and looks for the node that makes one fail or slow.

In: a collective check. Out: results, and the verdict of the search. A run that an earlier life of
the hub had started is ended, and counts as lost: it is not started a second time.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Optional

from msgspec.structs import replace

from nodevitals.checks import CheckError
from nodevitals.checks.collective import of_request
from nodevitals.checks.figures import at_size, largest
from nodevitals.checks.isolation import Bisection, request_of, state_of
from nodevitals.checks.launchers import Launcher
from nodevitals.checks.model import Check, RunResult, Verdict
from nodevitals.checks.runs import collective_seconds
from nodevitals.checks.verdicts import is_bad
from nodevitals.hub.runners import PlannedRun, Runner, skipped
from nodevitals.hub.store import Issued
from nodevitals.probes.fabric.report import failed


class CollectiveRunner(Runner):
    """Runs one collective per run."""

    def __init__(self, launcher: Launcher) -> None:
        self._launcher = launcher

    async def run(self, check: Check, run: PlannedRun, issued: Issued, again: bool) -> RunResult:
        """Run the collective over the run's nodes."""
        if again:
            try:
                await self._launcher.remove(issued.name)
            except CheckError as error:
                return replace(skipped(run, "lost"), raw=str(error))
            return skipped(run, "lost")
        started, clock = time.time(), time.monotonic()
        request = replace(check.request, nodes=run.nodes, test=run.test or check.request.test)
        limit = collective_seconds(request, len(run.nodes))
        try:
            wanted = of_request(request.test, run.nodes)
            done = await self._launcher.run(wanted, issued.name, limit)
        except CheckError as error:
            reports = (failed("harness", str(error)),)
            return RunResult(number=run.number, nodes=run.nodes, reports=reports, started=started)
        return RunResult(
            number=run.number,
            nodes=run.nodes,
            reports=done.reports,
            started=started,
            seconds=time.monotonic() - clock,
            raw=done.raw,
            versions=done.versions,
        )


async def isolate(
    check: Check,
    whole: RunResult,
    execute: Callable[[Sequence[PlannedRun]], Awaitable[Sequence[RunResult]]],
    rails: Sequence[str] = (),
) -> Optional[Verdict]:
    """Search for the reason why the collective over all nodes was bad; None where it was not.
    `execute` returns the stored result of a run that was executed before.
    """
    request = check.request
    if not request.isolate or not is_bad(request, whole, check.baseline):
        return None
    figure = at_size(whole, request.test, largest(request.test))
    bisection = Bisection(state_of(request, check.baseline, rails, whole=figure))
    number = whole.number + 1
    while batch := bisection.next():
        runs = []
        for group in batch:
            of_group = request_of(request, group)
            runs.append(PlannedRun(number=number, nodes=of_group.nodes, test=of_group.test))
            number += 1
        bisection.feed(await execute(runs))
    return bisection.verdict()
