"""Executes the runs of one check, and continues the runs of a hub that was killed.

In: a running check, with its issued runs and results. Out: its results. Each run waits until it is
the first of the remaining runs on each of its nodes: no node has two tests at a time.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

from nodevitals.checks.model import Check, RunResult
from nodevitals.probes.fabric.tools.report import failed
from nodevitals_hub.checks.runners import PlannedRun, Runner, skipped
from nodevitals_hub.store.check_store import Issued, Store, StoreError, Unfinished

RETRY_SECONDS = 2.0
Result = TypeVar("Result")

log = logging.getLogger(__name__)


async def until_stored(write: Callable[[], Awaitable[Result]]) -> Result:
    """Write, and retry until the store works: a full disk is a passing problem."""
    while True:
        try:
            return await write()
        except StoreError:  # the store has logged it
            await asyncio.sleep(RETRY_SECONDS)


class Execution:
    """The runs of one check."""

    def __init__(
        self,
        store: Store,
        runner: Runner,
        slots: asyncio.Semaphore,
        unfinished: Unfinished,
        progress: Callable[[RunResult], None],
    ) -> None:
        """`slots` limits the number of concurrent runs of all checks."""
        self._store, self._runner, self._slots = store, runner, slots
        self._check: Check = unfinished.check
        self._progress = progress
        self.results = {result.number: result for result in unfinished.results}
        self._issued = {issued.number: issued for issued in unfinished.issued}
        self.running: dict[int, tuple[PlannedRun, Issued]] = {}
        """The runs that have begun and have no result, by number."""
        self._tasks: set[asyncio.Task[None]] = set()
        self._none_left = asyncio.Event()
        self._queues: dict[str, deque[PlannedRun]] = {}

    def has_begun(self, number: int) -> bool:
        """Whether this hub, or an earlier one, has issued a run."""
        return number in self._issued or number in self.results

    async def execute(self, runs: Sequence[PlannedRun]) -> list[RunResult]:
        """Execute the runs that have no result, and return the results of all runs; cancellation
        ends all of them.
        """
        left = [run for run in runs if run.number not in self.results]
        # Runs that agents may already execute come first.
        left.sort(key=lambda run: (run.number not in self._issued, run.number))
        for run in left:
            for node in run.nodes:
                self._queues.setdefault(node, deque()).append(run)
        self._none_left = asyncio.Event()
        for run in left:
            self._start_if_first(run)
        try:
            if self._tasks:
                await self._none_left.wait()
        finally:
            tasks = list(self._tasks)
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        return [self.results[run.number] for run in runs]

    def _start_if_first(self, run: PlannedRun) -> None:
        if all(self._queues[node][0] is run for node in run.nodes):
            task = asyncio.get_running_loop().create_task(self._run(run))
            self._tasks.add(task)
            task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not self._tasks:
            self._none_left.set()

    async def _run(self, run: PlannedRun) -> None:
        async with self._slots:
            again = run.number in self._issued
            issued = self._issued.get(run.number) or await self._issue(run)
            self.running[run.number] = run, issued
            try:
                result = await self._runner.run(self._check, run, issued, again)
            except asyncio.CancelledError:
                self.results[run.number] = skipped(run, "canceled")
                raise
            except Exception as error:  # the boundary: one run must not end the others
                log.exception("%s", issued.name)
                text = f"a defect of the hub: {type(error).__name__}"
                result = RunResult(
                    number=run.number, nodes=run.nodes, reports=(failed("harness", text),)
                )
            finally:
                del self.running[run.number]
        await until_stored(lambda: self._store.record(self._check.id, result))
        self.results[run.number] = result
        self._progress(result)
        next_runs = set()
        for node in run.nodes:
            self._queues[node].popleft()
            if self._queues[node]:
                next_runs.add(self._queues[node][0])
        for next_run in next_runs:
            self._start_if_first(next_run)

    async def _issue(self, run: PlannedRun) -> Issued:
        """Store the run's name, which must happen before the run is executed."""
        issued = Issued(run.number, f"nv-{self._check.id}-{run.number}", time.time())
        await until_stored(lambda: self._store.issue(self._check.id, [issued]))
        self._issued[run.number] = issued
        return issued
