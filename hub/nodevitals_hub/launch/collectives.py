"""Runs collectives through a launcher.

In: a run of a collective check. Out: its result. A run that an earlier process of the hub had
started is ended, and counts as lost: it is not started a second time. Unless the check is forced,
nothing runs on nodes that jobs use.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence

from msgspec.structs import replace

from nodevitals.checks import CheckError
from nodevitals.checks.launchers.launcher import Launched, Launcher, commands_in, refused
from nodevitals.checks.model import Check, RunResult
from nodevitals.checks.requests.collective import of_request
from nodevitals.checks.requests.runs import collective_seconds
from nodevitals.checks.verdicts.findings import some
from nodevitals.probes.fabric.tools.report import Report, failed
from nodevitals_hub.checks.runners import PlannedRun, Runner, skipped
from nodevitals_hub.launch.node_watch import NodeWatch
from nodevitals_hub.store.check_store import Issued


class CollectiveRunner(Runner):
    """Runs one collective per run."""

    def __init__(self, launcher: Launcher, watch: NodeWatch) -> None:
        self._launcher, self._watch = launcher, watch
        self._partial: dict[str, dict[int, RunResult]] = {}
        """What runs have measured so far, by check and number."""

    def partial(self, identity: str) -> tuple[RunResult, ...]:
        """The sizes that the runs of a check have measured so far."""
        return tuple(self._partial.get(identity, {}).values())

    async def run(self, check: Check, run: PlannedRun, issued: Issued, again: bool) -> RunResult:
        """Run the collective over the run's nodes."""
        if again:
            try:
                await self._launcher.remove(issued.name)
            except CheckError as error:
                return replace(skipped(run, "lost"), outputs=(str(error),))
            return skipped(run, "lost")
        rails = () if run.number else await self._watch.rails(check.request)
        started, clock = time.time(), time.monotonic()
        try:
            done = await self._launched(check, run, issued.name)
        except CheckError as error:
            done = refused("harness", str(error))
        finally:
            self._forget(check.id, run.number)
        return RunResult(
            number=run.number,
            nodes=run.nodes,
            reports=await self._explained(done.reports, run),
            started=started,
            seconds=time.monotonic() - clock,
            commands=(commands_in(done.raw),),
            outputs=(done.raw,),
            versions=done.versions,
            rails=rails,
        )

    def _forget(self, identity: str, number: int) -> None:
        runs = self._partial.get(identity, {})
        runs.pop(number, None)
        if not runs:
            self._partial.pop(identity, None)

    async def _explained(self, reports: tuple[Report, ...], run: PlannedRun) -> tuple[Report, ...]:
        """The reports; `harness` if a node was unreachable and its agent does not answer either,
        because this is not a fault of its link.
        """
        last = reports[-1]
        if last.reason != "unreachable" or not (silent := await self._watch.silent(run.nodes)):
            return reports
        text = f"no answer from the agents of {some(silent)}; {last.message}"
        return (*reports[:-1], failed("harness", text))

    async def _launched(self, check: Check, run: PlannedRun, name: str) -> Launched:
        """Run it unless jobs use the nodes, and end it when a job starts on a node."""
        request = replace(check.request, nodes=run.nodes, test=run.test or check.request.test)
        wanted = of_request(request.test, run.nodes)
        limit = collective_seconds(request, len(run.nodes))

        def progress(reports: Sequence[Report]) -> None:
            so_far = RunResult(number=run.number, nodes=run.nodes, reports=tuple(reports))
            self._partial.setdefault(check.id, {})[run.number] = so_far

        if request.force:
            return await self._launcher.run(wanted, name, limit, progress)
        users = await self._watch.in_use(run.nodes)
        if users:
            return refused("peer_busy", users)
        launching = asyncio.ensure_future(self._launcher.run(wanted, name, limit, progress))
        watching = asyncio.ensure_future(self._watch.taken(run.nodes, wanted.devices_per_node))
        try:
            await asyncio.wait({launching, watching}, return_when=asyncio.FIRST_COMPLETED)
            if launching.done():
                return launching.result()
        finally:
            launching.cancel()
            watching.cancel()
            await asyncio.wait({launching, watching})  # until it has ended on the nodes
        return refused("peer_busy", watching.result())
