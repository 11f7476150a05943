"""Does what was decided: asks the scheduler, and writes what became of it.

In: isolations that may be acted on now. Out: their changes in the book. A failure is written and
tried again at the next round; nothing is done twice, as each act carries the isolation's id.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

from nodevitals.linux.host import Clock
from nodevitals_hub.isolation import isolation_acts as acts
from nodevitals_hub.isolation.isolation_book import Book
from nodevitals_hub.isolation.isolation_marks import Marks
from nodevitals_hub.isolation.isolation_states import OUT_STATES, is_intent
from nodevitals_hub.isolation.return_checks import Verdict
from nodevitals_hub.isolation.schedulers.command_scheduler import CommandScheduler
from nodevitals_hub.isolation.schedulers.kubernetes_scheduler import KubernetesScheduler
from nodevitals_hub.isolation.schedulers.schedulers import (
    DrainProgress,
    FailureKind,
    NodeState,
    Scheduler,
    SchedulerError,
)
from nodevitals_hub.isolation.schedulers.slurm_scheduler import SlurmScheduler
from nodevitals_hub.records import Isolation
from nodevitals_hub.settings.response import OutOfServiceSettings

AT_A_TIME = 4
ACT_SECONDS = 30.0
"""An answer of Prometheus is acted on for so long."""
FIRST_RETRY_SECONDS, LAST_RETRY_SECONDS = 60.0, 3600.0
_SCHEDULERS: Mapping[str, Callable[[OutOfServiceSettings], Scheduler]] = {
    "kubernetes": KubernetesScheduler,
    "slurm": SlurmScheduler,
    "command": CommandScheduler,
}

PROBLEMS = ("unreachable", "refused", "conflict", "foreign_mark")

log = logging.getLogger(__name__)
Test = Callable[[Isolation], Awaitable[Verdict]]


def scheduler_of(settings: OutOfServiceSettings) -> Scheduler:
    """The scheduler of the settings. Raises SchedulerError."""
    return _SCHEDULERS[settings.scheduler](settings)


class Work:
    """What one hub does with one scheduler."""

    def __init__(self, book: Book, clock: Clock, test: Test) -> None:
        self._book, self._clock, self._checks = book, clock, test
        self.marks = Marks(book, clock)
        self._room = asyncio.Semaphore(AT_A_TIME)
        self._tests: dict[str, asyncio.Task[None]] = {}
        self._waits: dict[str, tuple[float, float]] = {}
        """When a test that told nothing is tried again, and the wait after that."""
        self.problem = ""
        """Why the scheduler's states are not known, in one line."""
        self.waiting: dict[str, FailureKind] = {}
        """Isolations for which the scheduler did not do what the last round asked, and why."""
        self._failed: dict[str, FailureKind] = {}

    def note(self, error: SchedulerError) -> None:
        """The scheduler cannot be asked."""
        if str(error) != self.problem:
            log.warning("isolations: the scheduler: %s", error)
        self.problem = str(error)
        self._failed[""] = error.kind

    def begin(self) -> None:
        """Begin to collect what fails in a round."""
        self._failed = {}

    def end(self) -> None:
        """Publish what has failed in a round."""
        self.waiting = {
            identity: kind for identity, kind in self._failed.items() if kind in PROBLEMS
        }

    def problems(self) -> Counter[str]:
        """Number of isolations that wait for the scheduler, by why, and of foreign marks."""
        found = Counter[str](self.waiting.values())
        if self.marks.failure in PROBLEMS:
            found[self.marks.failure] += 1
        found["foreign_mark"] = len(self.marks.foreign)
        return found

    async def settle(self, scheduler: Scheduler, isolations: Sequence[Isolation]) -> None:
        """Read how the nodes are: what a killed hub has done, what people have done."""
        own = [
            one
            for one in isolations
            if one.state in OUT_STATES and not one.dry_run and (one.tried or one.acted)
        ]
        found = await self._states(scheduler, own)
        for one in own:
            if one.node in found:
                await self._change(one, acts.read_back, found[one.node])

    async def isolate(self, scheduler: Scheduler, isolations: Sequence[Isolation]) -> None:
        """Take nodes out of service, by an answer of Prometheus that was read just now."""
        until = self._clock.monotonic() + ACT_SECONDS
        rehearsed = [one for one in isolations if one.dry_run]
        found = await self._states(scheduler, rehearsed)
        for one in rehearsed:
            if one.node in found:
                await self._rehearse(one, found[one.node])
        await asyncio.gather(
            *(self._isolate(scheduler, one, until) for one in isolations if not one.dry_run)
        )

    async def restore(self, scheduler: Scheduler, isolations: Sequence[Isolation]) -> None:
        """Return nodes to service."""
        await asyncio.gather(*(self._restore(scheduler, one) for one in isolations))

    async def describe(self, scheduler: Scheduler, isolations: Sequence[Isolation]) -> None:
        """Bring the reasons of nodes up to date."""
        for one in isolations:
            async with self._room:
                try:
                    await scheduler.describe(one)
                except SchedulerError as error:
                    self._failed[one.id] = error.kind
                    continue  # tried again at the next round
            await self._change(one, acts.described, one.faults)

    async def drain(self, scheduler: Scheduler, isolations: Sequence[Isolation]) -> None:
        """Go on to end what runs on nodes."""
        for one in isolations:
            async with self._room:
                try:
                    progress = await scheduler.drain(one)
                except SchedulerError as error:
                    self._failed[one.id] = error.kind
                    progress = DrainProgress(-1, str(error))
            await self._change(one, acts.drained, progress)

    def test(self, isolations: Sequence[Isolation]) -> None:
        """Begin the checks before the return, each once at a time."""
        wanted = {one.id: one for one in isolations}
        for identity in self._tests.keys() - wanted.keys():
            self._tests.pop(identity).cancel()
        self._waits = {name: wait for name, wait in self._waits.items() if name in wanted}
        for identity, one in wanted.items():
            due = self._waits.get(identity, (0.0, 0.0))[0]
            if identity not in self._tests and self._clock.monotonic() >= due:
                self._tests[identity] = asyncio.ensure_future(self._test(one))

    async def close(self) -> None:
        """End the tests that run."""
        tests, self._tests = list(self._tests.values()), {}
        for test in tests:
            test.cancel()
        await asyncio.gather(*tests, return_exceptions=True)

    async def _isolate(self, scheduler: Scheduler, isolation: Isolation, until: float) -> None:
        async with self._room:
            if self._clock.monotonic() > until:
                return  # what Prometheus said is old
            current = await self._book.change(isolation.id, acts.trying)
            if current is None or not is_intent(current):
                return  # a person has canceled it
            try:
                await scheduler.isolate(current)
            except SchedulerError as error:
                kind = error.kind
                if kind == "taken" and await self.marks.is_late(scheduler, isolation.node):
                    kind = "conflict"
                self._failed[isolation.id] = kind
                await self._change(isolation, acts.failed, kind, str(error))
            else:
                await self._change(isolation, acts.done)

    async def _rehearse(self, isolation: Isolation, state: NodeState | None) -> None:
        """What the scheduler would have said."""
        if state is None:
            await self._change(isolation, acts.failed, "unknown_node", isolation.node)
        elif not state.in_service:
            await self._change(isolation, acts.failed, "taken", isolation.node)
        else:
            await self._change(isolation, acts.done)

    async def _restore(self, scheduler: Scheduler, isolation: Isolation) -> None:
        async with self._room:
            try:
                await scheduler.restore(isolation)
            except SchedulerError as error:
                self._failed[isolation.id] = error.kind
                await self._change(isolation, acts.not_restored, error.kind, str(error))
            else:
                await self._change(isolation, acts.restored)

    async def _test(self, isolation: Isolation) -> None:
        try:
            verdict = await self._checks(isolation)
        except Exception as error:  # of another module: the next round goes on without it
            log.exception("isolation %s: its checks", isolation.id)
            verdict = Verdict(None, f"{type(error).__name__} in the hub: see its log")
        ok, text, check = verdict
        if ok is None:
            wait = self._waits.get(isolation.id, (0.0, FIRST_RETRY_SECONDS))[1]
            next_wait = min(2 * wait, LAST_RETRY_SECONDS)
            self._waits[isolation.id] = (self._clock.monotonic() + wait, next_wait)
            await self._change(isolation, acts.not_tested, text)
        else:
            await self._change(isolation, acts.tested, ok, text, check)
        self._tests.pop(isolation.id, None)

    async def _states(
        self, scheduler: Scheduler, isolations: Sequence[Isolation]
    ) -> Mapping[str, NodeState | None]:
        """The states that could be read; None for a node that the scheduler does not have."""
        nodes = sorted({one.node for one in isolations})
        found, error = await _read(scheduler, nodes)
        if error is not None and error.kind == "refused" and len(nodes) > 1:
            # One node must not hide the others; without an answer, each would take its time.
            each = [await _read(scheduler, [node]) for node in nodes]
            found = {node: state for one, _ in each for node, state in one.items()}
        if error is None:
            self.problem = "" if nodes else self.problem
            return found
        self.note(error)
        del self._failed[""]
        self._failed.update({one.id: error.kind for one in isolations if one.node not in found})
        return found

    async def _change(
        self, isolation: Isolation, act: Callable[..., Isolation], *more: Any
    ) -> None:
        now = self._clock.time()
        await self._book.change(isolation.id, lambda old: act(old, *more, now))


async def _read(
    scheduler: Scheduler, nodes: Sequence[str]
) -> tuple[dict[str, NodeState | None], SchedulerError | None]:
    """The states of nodes, or why they are not known."""
    if not nodes:
        return {}, None
    try:
        found = await scheduler.states(nodes)
    except SchedulerError as error:
        return {}, error
    return {node: found.get(node) for node in nodes}, None
