"""Takes nodes out of service for confirmed faults, and returns them.

In: answers of Prometheus, settings, requests of persons. Out: isolations in respond.db, and calls
of a scheduler. Each round: read the nodes' states, query, decide and write, query again, act,
write. A hub that is killed in between continues from what is written.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING

from nodevitals.checks.deadlines import within
from nodevitals.linux.host import Clock
from nodevitals_hub import families
from nodevitals_hub.alerting.servers import Servers
from nodevitals_hub.checks.newest import Sample
from nodevitals_hub.isolation import isolation_acts as acts
from nodevitals_hub.isolation.decisions import may_act
from nodevitals_hub.isolation.fault_queries import FaultQueries
from nodevitals_hub.isolation.faults import Seen
from nodevitals_hub.isolation.isolation_book import OUTCOMES, Book
from nodevitals_hub.isolation.isolation_states import is_intent
from nodevitals_hub.isolation.isolation_work import (
    PROBLEMS,
    Test,
    Work,
    scheduler_of,
)
from nodevitals_hub.isolation.observers import Observers
from nodevitals_hub.isolation.recovery import unconfirmed
from nodevitals_hub.isolation.return_checks import ReturnChecks
from nodevitals_hub.isolation.schedulers.schedulers import Scheduler, SchedulerError
from nodevitals_hub.records import OPEN_STATES, Isolation
from nodevitals_hub.repair.repairs import Repairs
from nodevitals_hub.settings.response import OutOfServiceSettings
from nodevitals_hub.store.check_store import StoreError

if TYPE_CHECKING:
    from nodevitals_hub.context import Hub

IDLE_SECONDS = 5.0
PRUNE_SECONDS = 3600.0

log = logging.getLogger(__name__)


class Isolations:
    """All isolations of a hub."""

    def __init__(
        self,
        hub: Hub,
        servers: Servers,
        clock: Clock | None = None,
        scheduler: Callable[[OutOfServiceSettings], Scheduler] = scheduler_of,
        test: Test | None = None,
    ) -> None:
        """`test`: checks before a return that replace the usual ones."""
        self._hub = hub
        self._make = scheduler
        self._clock = clock or Clock()
        self.book = Book(hub, self._clock)
        self.queries = FaultQueries(hub, servers, self._clock)
        self._observers = Observers(hub, servers, self.book)
        test = test or ReturnChecks(hub, servers, self.book).test
        self._work = Work(self.book, self._clock, test)
        self.repairs = Repairs(hub, self.book, self._clock)
        self._used: tuple[OutOfServiceSettings, Scheduler] | None = None
        self._changed = asyncio.Event()
        self._pruned = -PRUNE_SECONDS

    @property
    def problem(self) -> str:
        """Why nothing is decided or done, in one line."""
        return self._work.problem or self.queries.problem or self._work.marks.problem

    @property
    def foreign(self) -> dict[str, str]:
        """The ids of marks that this hub does not remove, by node."""
        return self._work.marks.foreign

    def wake(self) -> None:
        """Begin the next round now."""
        self._changed.set()

    async def run(self) -> None:
        """Run rounds until cancelled."""
        try:
            while True:
                self._changed.clear()
                settings = self._hub.settings.out_of_service
                if settings is not None:
                    try:
                        await self.round(settings)
                    except StoreError as error:
                        log.error("isolations: %s", error)
                pause = IDLE_SECONDS if settings is None else settings.every
                try:
                    await within(self._changed.wait(), pause)
                except TimeoutError:
                    continue
        finally:
            await self.close()

    async def close(self) -> None:
        """End checks that run, and close the scheduler."""
        await self._work.close()
        await self.repairs.close()
        used, self._used = self._used, None
        if used is not None:
            await used[1].close()

    async def round(self, settings: OutOfServiceSettings) -> None:
        """One round. Raises StoreError."""
        await self.repairs.watch()
        self._work.begin()
        try:
            scheduler = await self._scheduler(settings)
        except SchedulerError as error:
            self._work.note(error)
        else:
            await self._round(scheduler, settings)
        self._work.end()

    async def _round(self, scheduler: Scheduler, settings: OutOfServiceSettings) -> None:
        await self._work.settle(scheduler, await self.book.followed())
        if not settings.dry_run:
            await self._work.marks.look(scheduler)
        seen = await self._decided(settings)
        pending = [
            isolation
            for isolation in await self.book.followed()
            if _is_pending(isolation, settings)
        ]
        if seen is not None and pending:
            seen = await self._decided(settings)  # docs/automation.md: once more before the act
        if seen is not None:
            await self._act(scheduler, settings, seen, {isolation.id for isolation in pending})
        followed = await self.book.followed()
        asked = [
            isolation
            for isolation in followed
            if isolation.restoring and isolation.restoring != "hub"
        ]
        await self._work.restore(scheduler, asked)
        if seen is not None:
            await self.repairs.begin(scheduler, settings, lambda: self._decided(settings), seen)
        if self._clock.monotonic() - self._pruned >= PRUNE_SECONDS:
            self._pruned = self._clock.monotonic()
            await self.book.prune()
            await self.repairs.book.prune()

    async def _decided(self, settings: OutOfServiceSettings) -> Seen | None:
        """Query Prometheus and decide; None where the answer is not usable."""
        seen = await self.queries.read(full=bool(await self.book.followed()))
        if seen is not None:
            members = self._hub.members.by_name
            await self.book.decide(seen, members, settings)
        return seen

    async def _act(
        self, scheduler: Scheduler, settings: OutOfServiceSettings, seen: Seen, pending: set[str]
    ) -> None:
        """Execute the earlier decisions that this answer still allows."""
        followed = await self.book.followed()
        members = self._hub.members.by_name
        allowed = [
            isolation
            for isolation in followed
            if isolation.id in pending
            and may_act(isolation, seen, members, settings, self.book.ledger)
        ]
        confirmed = await self._confirmed(allowed, seen, settings)
        await self._work.isolate(scheduler, confirmed)
        if settings.dry_run:
            self._work.test(())
            return
        own = [
            isolation
            for isolation in followed
            if not isolation.dry_run and not isolation.restoring and isolation.acted
        ]
        idle = [isolation for isolation in followed if isolation.id not in self.repairs.busy]
        returning = [
            isolation
            for isolation in idle
            if isolation.id in pending and isolation.restoring == "hub"
        ]
        await self._work.restore(scheduler, returning)
        await self._work.describe(
            scheduler, [isolation for isolation in own if isolation.undescribed]
        )
        if settings.drain:
            now = self._clock.time()
            await self._work.drain(
                scheduler, [isolation for isolation in own if _drains(isolation, settings, now)]
            )
        self._work.test(
            [isolation for isolation in own if isolation.state == "testing" and isolation in idle]
        )

    async def _confirmed(
        self, isolations: Sequence[Isolation], seen: Seen, settings: OutOfServiceSettings
    ) -> list[Isolation]:
        """Of these, those that other nodes confirm now, where they must."""

        async def asked(isolation: Isolation) -> Isolation | None:
            faults = unconfirmed(isolation, seen, settings)
            if settings.recovery is None or not faults:
                return isolation
            ok, text, _ = await self._observers.confirmed(isolation, faults, settings.recovery)
            noted = partial(acts.asked_others, ok=ok, text=text, now=self._clock.time())
            after = await self.book.change(isolation.id, noted)
            return after if ok else None

        return [one for one in await asyncio.gather(*map(asked, isolations)) if one is not None]

    async def _scheduler(self, settings: OutOfServiceSettings) -> Scheduler:
        if self._used is None or self._used[0] != settings:
            used, self._used = self._used, None
            if used is not None:
                await used[1].close()
            self._used = settings, self._make(settings)
        return self._used[1]

    def samples(self) -> Iterable[Sample]:
        """What /metrics shows; nothing where nodes are not taken out of service."""
        settings = self._hub.settings.out_of_service
        if settings is None:
            return
        counts = Counter(
            (isolation.state, isolation.pool, isolation.dry_run)
            for isolation in self.book.open.values()
        )
        pools = {isolation.pool for isolation in self.book.open.values()}
        for pool in sorted(pools):
            for state in OPEN_STATES:
                for dry in (False, True):
                    yield families.ISOLATIONS, (pool, state, _flag(dry)), counts[state, pool, dry]
        for outcome in OUTCOMES:
            for dry in (False, True):
                yield (
                    families.ISOLATION_DECISIONS,
                    (outcome, _flag(dry)),
                    self.book.outcomes[outcome, dry],
                )
        for dry in (False, True):
            shown = settings.dry_run == dry and self.book.ledger.breaker.open
            yield families.ISOLATION_BREAKER, (_flag(dry),), float(shown)
        problems = self._work.problems()
        for reason in PROBLEMS:
            yield families.ISOLATION_PROBLEMS, (reason,), float(problems[reason])
        yield families.ISOLATION_ANSWER_AGE, (), self.queries.age
        yield from self.repairs.samples()


def _is_pending(isolation: Isolation, settings: OutOfServiceSettings) -> bool:
    returns = isolation.restoring == "hub" and not settings.dry_run
    return is_intent(isolation) or returns


def _drains(isolation: Isolation, settings: OutOfServiceSettings, now: float) -> bool:
    """Whether what runs on a node is to be ended now, by the latest answer of Prometheus."""
    return (
        isolation.drained is None
        and isolation.state in ("isolated", "kept")
        and isolation.acted is not None
        and 0 <= now - isolation.acted < settings.drain_timeout
        and any(fault.service == "drain_now" for fault in isolation.present)
    )


def _flag(value: bool) -> str:
    return "true" if value else "false"
