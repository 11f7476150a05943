"""Takes nodes out of service for confirmed faults, and returns them.

In: Prometheus' answers, settings, what people ask. Out: isolations in respond.db, and calls of a
scheduler. Each round: read how the nodes are, ask, decide and write, ask again, act, write. A hub
that is killed anywhere in between goes on from what is written.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from nodevitals.checks.deadlines import within
from nodevitals.linux.host import Clock
from nodevitals_hub import families
from nodevitals_hub.alerting.servers import Servers
from nodevitals_hub.checks.newest import Sample
from nodevitals_hub.isolation.fault_queries import Watching
from nodevitals_hub.isolation.faults import Seen
from nodevitals_hub.isolation.isolation_book import OUTCOMES, Book
from nodevitals_hub.isolation.isolation_states import is_intent
from nodevitals_hub.isolation.isolation_work import (
    PROBLEMS,
    Test,
    Work,
    scheduler_of,
)
from nodevitals_hub.isolation.limits import may_act
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
        """`test`: the checks before a return, other than the usual ones."""
        self._hub = hub
        self._make = scheduler
        self._clock = clock or Clock()
        self.book = Book(hub, self._clock)
        self.watching = Watching(hub, servers, self._clock)
        test = test or ReturnChecks(hub, servers, self.book).test
        self._work = Work(self.book, self._clock, test)
        self.repairs = Repairs(hub, self.book, self._clock)
        self._used: tuple[OutOfServiceSettings, Scheduler] | None = None
        self._changed = asyncio.Event()
        self._pruned = -PRUNE_SECONDS

    @property
    def problem(self) -> str:
        """Why nothing is decided or done, in one line."""
        return self._work.problem or self.watching.problem or self._work.marks.problem

    @property
    def foreign(self) -> dict[str, str]:
        """Nodes with a mark of no isolation here that is out of service, and its id."""
        return self._work.marks.foreign

    def wake(self) -> None:
        """Begin the next round now."""
        self._changed.set()

    async def run(self) -> None:
        """Go round until cancelled."""
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
        found = await self._decided(settings)
        pending = [one for one in await self.book.followed() if _is_pending(one, settings)]
        if found is not None and pending:
            found = await self._decided(settings)  # docs/automation.md: once more before the act
        if found is not None:
            await self._act(scheduler, settings, found, {one.id for one in pending})
        followed = await self.book.followed()
        asked = [one for one in followed if one.restoring and one.restoring != "hub"]
        await self._work.restore(scheduler, asked)
        if found is not None:
            await self.repairs.begin(scheduler, settings, lambda: self._decided(settings), found)
        if self._clock.monotonic() - self._pruned >= PRUNE_SECONDS:
            self._pruned = self._clock.monotonic()
            await self.book.prune()
            await self.repairs.book.prune()

    async def _decided(self, settings: OutOfServiceSettings) -> Seen | None:
        """Ask Prometheus and decide; None where its answer is of no use."""
        seen = await self.watching.look(full=bool(await self.book.followed()))
        if seen is not None:
            members = {member.name: member for member in self._hub.checks.members()}
            await self.book.decide(seen, members, settings)
        return seen

    async def _act(
        self, scheduler: Scheduler, settings: OutOfServiceSettings, seen: Seen, pending: set[str]
    ) -> None:
        """Do what this answer allows, of what was decided before it."""
        followed = await self.book.followed()
        members = {member.name: member for member in self._hub.checks.members()}
        allowed = [
            one
            for one in followed
            if one.id in pending and may_act(one, seen, members, settings, self.book.ledger)
        ]
        await self._work.isolate(scheduler, allowed)
        if settings.dry_run:
            self._work.test(())
            return
        own = [one for one in followed if not one.dry_run and not one.restoring and one.acted]
        idle = [one for one in followed if one.id not in self.repairs.busy]
        returning = [one for one in idle if one.id in pending and one.restoring == "hub"]
        await self._work.restore(scheduler, returning)
        await self._work.describe(scheduler, [one for one in own if one.undescribed])
        if settings.drain:
            now = self._clock.time()
            await self._work.drain(scheduler, [one for one in own if _drains(one, settings, now)])
        self._work.test([one for one in own if one.state == "testing" and one in idle])

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
        counts = Counter((one.state, one.pool, one.dry_run) for one in self.book.open.values())
        pools = {one.pool for one in self.book.open.values()}
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
        yield families.ISOLATION_ANSWER_AGE, (), self.watching.age
        yield from self.repairs.samples()


def _is_pending(isolation: Isolation, settings: OutOfServiceSettings) -> bool:
    returns = isolation.restoring == "hub" and not settings.dry_run
    return is_intent(isolation) or returns


def _drains(isolation: Isolation, settings: OutOfServiceSettings, now: float) -> bool:
    """Whether what runs on a node is to be ended now, by what Prometheus has just said."""
    return (
        isolation.drained is None
        and isolation.state in ("isolated", "kept")
        and isolation.acted is not None
        and 0 <= now - isolation.acted < settings.drain_timeout
        and any(fault.service == "drain_now" for fault in isolation.present)
    )


def _flag(value: bool) -> str:
    return "true" if value else "false"
