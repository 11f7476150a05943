"""Executes decisions: calls the scheduler and records the results.

In: isolations that may be acted on now. Out: their changes in the book. A failure is recorded and
tried again in the next round; nothing is done twice, because each act carries the isolation's id.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence

from nodevitals.linux.host import Clock
from nodevitals_hub.isolation import isolation_acts as acts
from nodevitals_hub.isolation.isolation_book import Book
from nodevitals_hub.isolation.isolation_marks import Marks
from nodevitals_hub.isolation.isolation_states import OUT_STATES, is_intent
from nodevitals_hub.isolation.recovery import Verdict
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
"""How long after an answer of Prometheus the hub still acts on it."""
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
    """The acts of one hub on one scheduler."""

    def __init__(self, book: Book, clock: Clock, test: Test) -> None:
        self._book, self._clock, self._checks = book, clock, test
        self.marks = Marks(book, clock)
        self._room = asyncio.Semaphore(AT_A_TIME)
        self._tests: dict[str, asyncio.Task[None]] = {}
        self._waits: dict[str, tuple[float, float]] = {}
        """When a test without a result is tried again, and the wait after that."""
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
        """Number of isolations that wait for the scheduler, by reason, and of foreign marks."""
        counts = Counter[str](self.waiting.values())
        if self.marks.failure in PROBLEMS:
            counts[self.marks.failure] += 1
        counts["foreign_mark"] = len(self.marks.foreign)
        return counts

    async def settle(self, scheduler: Scheduler, isolations: Sequence[Isolation]) -> None:
        """Read the nodes' states: a killed hub or a person may have changed them."""
        own = [
            isolation
            for isolation in isolations
            if isolation.state in OUT_STATES
            and not isolation.dry_run
            and (isolation.tried or isolation.acted)
        ]
        states = await self._states(scheduler, own)
        for isolation in own:
            if isolation.node in states:
                await self._change(isolation, acts.read_back, states[isolation.node])

    async def isolate(self, scheduler: Scheduler, isolations: Sequence[Isolation]) -> None:
        """Take nodes out of service, by an answer of Prometheus read just before."""
        until = self._clock.monotonic() + ACT_SECONDS
        rehearsed = [isolation for isolation in isolations if isolation.dry_run]
        states = await self._states(scheduler, rehearsed)
        for isolation in rehearsed:
            if isolation.node in states:
                await self._rehearse(isolation, states[isolation.node])
        await asyncio.gather(
            *(
                self._isolate(scheduler, isolation, until)
                for isolation in isolations
                if not isolation.dry_run
            )
        )

    async def restore(self, scheduler: Scheduler, isolations: Sequence[Isolation]) -> None:
        """Return nodes to service."""
        await asyncio.gather(*(self._restore(scheduler, isolation) for isolation in isolations))

    async def describe(self, scheduler: Scheduler, isolations: Sequence[Isolation]) -> None:
        """Bring the reasons of nodes up to date."""
        for isolation in isolations:
            async with self._room:
                try:
                    await scheduler.describe(isolation)
                except SchedulerError as error:
                    self._failed[isolation.id] = error.kind
                    continue  # tried again at the next round
            await self._change(isolation, acts.described, isolation.faults)

    async def drain(self, scheduler: Scheduler, isolations: Sequence[Isolation]) -> None:
        """Continue to end what runs on nodes."""
        for isolation in isolations:
            async with self._room:
                try:
                    progress = await scheduler.drain(isolation)
                except SchedulerError as error:
                    self._failed[isolation.id] = error.kind
                    progress = DrainProgress(-1, str(error))
            await self._change(isolation, acts.drained, progress)

    def test(self, isolations: Sequence[Isolation]) -> None:
        """Begin the checks before the return, at most one run per isolation at a time."""
        wanted = {isolation.id: isolation for isolation in isolations}
        for identity in self._tests.keys() - wanted.keys():
            self._tests.pop(identity).cancel()
        self._waits = {name: wait for name, wait in self._waits.items() if name in wanted}
        for identity, isolation in wanted.items():
            due = self._waits.get(identity, (0.0, 0.0))[0]
            if identity not in self._tests and self._clock.monotonic() >= due:
                self._tests[identity] = asyncio.ensure_future(self._test(isolation))

    async def close(self) -> None:
        """End the tests that run."""
        tests, self._tests = list(self._tests.values()), {}
        for test in tests:
            test.cancel()
        await asyncio.gather(*tests, return_exceptions=True)

    async def _isolate(self, scheduler: Scheduler, isolation: Isolation, until: float) -> None:
        async with self._room:
            if self._clock.monotonic() > until:
                return  # the answer of Prometheus is too old
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
        """Record the result that the scheduler would have returned."""
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
        nodes = sorted({isolation.node for isolation in isolations})
        states, error = await _read(scheduler, nodes)
        if error is not None and error.kind == "refused" and len(nodes) > 1:
            # One refused node must not hide the others. Not done for a scheduler without an
            # answer: each node would wait for the timeout.
            answers = [await _read(scheduler, [node]) for node in nodes]
            states = {node: state for known, _ in answers for node, state in known.items()}
        if error is None:
            self.problem = "" if nodes else self.problem
            return states
        self.note(error)
        del self._failed[""]
        self._failed.update(
            {isolation.id: error.kind for isolation in isolations if isolation.node not in states}
        )
        return states

    async def _change(
        self, isolation: Isolation, act: Callable[..., Isolation], *more: object
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
        states = await scheduler.states(nodes)
    except SchedulerError as error:
        return {}, error
    return {node: states.get(node) for node in nodes}, None
