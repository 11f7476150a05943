"""Starts what a site has set for the faults of nodes out of service, and watches it.

In: isolations, settings, Prometheus' answers. Out: objects at the API server, commands, and repairs
in respond.db. Each is written before it is started, and started once: the object carries its id; a
command that ran when the hub was killed is not started again.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable
from typing import TYPE_CHECKING

from nodevitals.checks import processes
from nodevitals.linux.host import Clock
from nodevitals_hub.checks.newest import Sample
from nodevitals_hub.isolation.faults import Seen
from nodevitals_hub.isolation.isolation_book import Book
from nodevitals_hub.isolation.schedulers.schedulers import Scheduler, SchedulerError
from nodevitals_hub.records import Fault, Isolation
from nodevitals_hub.repair import repair_acts as acts
from nodevitals_hub.repair import repair_plan as plan
from nodevitals_hub.repair.repair_acts import View
from nodevitals_hub.repair.repair_book import RepairBook
from nodevitals_hub.repair.repair_objects import Objects
from nodevitals_hub.repair.repair_plan import Planned
from nodevitals_hub.repair.repair_records import Repair
from nodevitals_hub.settings.repairs import RepairSettings
from nodevitals_hub.settings.response import OutOfServiceSettings

if TYPE_CHECKING:
    from nodevitals_hub.context import Hub

LOST = "the hub ended while it ran: it is not started again"
LATE = "not started within its time"

log = logging.getLogger(__name__)


class Commands:
    """Those of one hub."""

    def __init__(self, book: RepairBook) -> None:
        self._book = book
        self._running: dict[str, asyncio.Task[processes.Ended]] = {}

    async def start(self, repair: Repair, now: float) -> None:
        """Start one that was decided. Raises StoreError."""
        after = await self._book.change(repair, acts.began, "", now)
        if after.state == "started":  # written first: a killed hub cannot know whether it ran
            running = processes.run(after.command, after.timeout)
            self._running[after.id] = asyncio.ensure_future(running)

    async def watch(self, repair: Repair, now: float) -> None:
        """Record the end of one. Raises StoreError."""
        if repair.state == "wanted":
            if repair.lasted >= repair.timeout:
                await self._book.change(repair, acts.over, "canceled", LATE, now)
            return
        task = self._running.get(repair.id)
        if task is None:
            await self._book.change(repair, acts.over, "unknown", LOST, now)
        elif task.done():
            try:
                state, text = acts.of_command(task.result(), repair.timeout)
            except Exception as error:  # of this hub: the command may have done its work
                log.exception("repair %s", repair.id)
                state, text = "unknown", f"{type(error).__name__} in the hub: see its log"
            await self._book.change(repair, acts.over, state, text, now)
            del self._running[repair.id]

    async def close(self) -> None:
        """End those that run."""
        tasks = list(self._running.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._running.clear()


Chosen = list[tuple[Isolation, RepairSettings, list[Fault]]]
ACT_SECONDS = 30.0
"""An answer of Prometheus is acted on for so long."""


class _AwayError(Exception):
    """No answer: the rest of this round would wait as long."""


class Repairs:
    """The repairs of a hub."""

    def __init__(self, hub: Hub, isolations: Book, clock: Clock) -> None:
        self._hub, self._isolations, self._clock = hub, isolations, clock
        self.book = RepairBook(hub.database, clock)
        self._objects = Objects(self.book)
        self._commands = Commands(self.book)
        self._before: float | None = None
        self.notes: dict[str, str] = {}
        """Why a repair does not begin yet, by its id."""
        self._said: dict[str, str] = {}
        """What of these is in the log."""

    @property
    def busy(self) -> set[str]:
        """The isolations whose repairs run: the hub does not return their nodes meanwhile."""
        return {one.isolation for one in self.book.running}

    def samples(self) -> Iterable[Sample]:
        """What /metrics shows; nothing where no repair is set or runs."""
        settings = self._hub.settings.out_of_service
        shown = bool(self.book.running) or bool(settings and settings.repairs)
        return self.book.samples() if shown else ()

    async def close(self) -> None:
        """End the commands that run, and close the connections."""
        await self._commands.close()
        await self._objects.close()

    async def watch(self) -> None:
        """Look at what runs. Raises StoreError."""
        now = self._clock.monotonic()
        elapsed = 0.0 if self._before is None else max(0.0, now - self._before)
        self._before = now
        running = await self.book.follow(self._isolations.open, elapsed)
        for one in running:
            if one.target is None:
                await self._commands.watch(one, self._clock.time())
        objects = [one for one in running if one.target is not None]
        await self._objects.watch(objects, self._clock.time())

    async def begin(
        self,
        scheduler: Scheduler,
        settings: OutOfServiceSettings,
        ask: Callable[[], Awaitable[Seen | None]],
        seen: Seen,
    ) -> None:
        """Start what may begin now, by an answer that is asked for it. Raises StoreError."""
        self._said, self.notes = self.notes, {}
        wanted = [one for one in self.book.running if one.state == "wanted"]
        if not wanted and not await self._chosen(self._view(settings, seen)):
            return
        again = await ask()  # docs/automation.md: once more before the act
        if again is None or self._hub.settings.out_of_service != settings:
            return
        until = self._clock.monotonic() + ACT_SECONDS
        view = self._view(settings, again)
        try:
            for one in wanted:
                if self._clock.monotonic() <= until:
                    await self._resume(scheduler, view, one)
            for isolation, entry, faults in await self._chosen(view):
                if self._clock.monotonic() <= until:
                    await self._begin(scheduler, view, isolation, entry, faults)
        except _AwayError as error:
            self._tell("", str(error))

    def _view(self, settings: OutOfServiceSettings, seen: Seen) -> View:
        members = {member.name: member for member in self._hub.checks.members()}
        return View(seen, members, settings, self._isolations.ledger)

    async def _chosen(self, view: View) -> Chosen:
        """What may begin and did not: the oldest isolation first, in the order of the settings."""
        if not view.settings.repairs:
            return []
        followed = [one for one in await self._isolations.followed() if view.holds(one)]
        known = {one.id for one in await self.book.known(followed)}
        found: Chosen = []
        for isolation in followed:
            for entry in view.settings.repairs:
                faults = view.faults(isolation, entry)
                if faults and plan.identity_of(isolation, entry) not in known:
                    found.append((isolation, entry, faults))
        return found

    async def _begin(
        self,
        scheduler: Scheduler,
        view: View,
        isolation: Isolation,
        entry: RepairSettings,
        faults: list[Fault],
    ) -> None:
        identity = plan.identity_of(isolation, entry)
        reason = self._limit(isolation, entry) or await _obstacle(scheduler, isolation, entry)
        if reason:
            self._tell(identity, reason)
            return
        repair = Repair(
            id=identity,
            isolation=isolation.id,
            name=entry.name,
            node=isolation.node,
            fault=faults[0].fault,
            device_id=faults[0].device_id,
            action=faults[0].action,
            state="dry_run" if entry.dry_run else "wanted",
            created=self._clock.time(),
            timeout=entry.timeout,
            remove=entry.remove,
        )
        values = plan.values_of(isolation, faults, identity, self._hub.settings.cluster)
        planned, failure = self._planned(identity, entry, values)
        if planned is None and not failure:
            return
        if planned is not None:
            made = acts.aimed(repair, planned.target, planned.command)
        else:
            made = acts.impossible(repair, failure)
        refusal = await self.book.begin(made, entry, view.holds)
        if refusal:
            self._tell(identity, refusal)
        elif made.state == "wanted" and planned is not None:
            await self._start(made, planned)

    def _limit(self, isolation: Isolation, entry: RepairSettings) -> str:
        """Why it need not be asked for; the limits are looked at again when it is written."""
        if isolation.id in self.busy:
            return "another repair of the node runs"
        running = sum(one.name == entry.name for one in self.book.running)
        if not entry.dry_run and running >= entry.at_most:
            return f"limit: {running} run (at_most: {entry.at_most})"
        return ""

    def _planned(
        self, identity: str, entry: RepairSettings, values: dict[str, str]
    ) -> tuple[Planned | None, str]:
        """What is started, or why it never can be; neither where its file is not readable now."""
        try:
            return plan.planned(entry, values, identity), ""
        except plan.FileError as error:
            self._tell(identity, str(error))
            return None, ""
        except plan.RepairError as error:
            return None, str(error)

    async def _start(self, repair: Repair, planned: Planned) -> None:
        now = self._clock.time()
        if repair.target is not None:
            await self._objects.create(repair, planned.document, now)
            if self._objects.is_away:
                raise _AwayError("no answer from the API server")
            return
        await self._commands.start(repair, now)

    async def _resume(self, scheduler: Scheduler, view: View, repair: Repair) -> None:
        """One that was decided, and is not known to be started: only while it may still begin."""
        now = self._clock.time()
        if repair.target is not None:
            is_there = await self._objects.is_there(repair, now)
            if is_there is None and self._objects.is_away:
                raise _AwayError("no answer from the API server")
            if is_there is not False:
                return
        found = [one for one in await self._isolations.followed() if one.id == repair.isolation]
        entries = [one for one in view.settings.repairs if one.name == repair.name]
        faults = view.faults(found[0], entries[0]) if found and entries else []
        if not faults or entries[0].dry_run or bool(entries[0].command) != (repair.target is None):
            text = "its conditions ended before it was started"
            await self.book.change(repair, acts.over, "canceled", text, now)
            return
        reason = await _obstacle(scheduler, found[0], entries[0])
        if reason:
            await self.book.change(repair, acts.noted, reason)
            return
        values = plan.values_of(found[0], faults, repair.id, self._hub.settings.cluster)
        planned, failure = self._planned(repair.id, entries[0], values)
        if failure:
            await self.book.change(repair, acts.over, "failed", failure, now)
        elif planned is not None:
            aimed = (planned.target, planned.command)
            await self._start(await self.book.change(repair, acts.aimed, *aimed), planned)

    def _tell(self, identity: str, reason: str) -> None:
        if self._said.get(identity) != reason:
            log.info("repair%s: not yet started: %s", identity and f" {identity}", reason)
        self.notes[identity] = reason


async def _obstacle(scheduler: Scheduler, isolation: Isolation, entry: RepairSettings) -> str:
    """Why a node is not to be touched now, by what the scheduler says; "" for nothing."""
    try:
        state = (await scheduler.states([isolation.node])).get(isolation.node)
        if state is None or state.in_service or state.mark != isolation.id:
            return f"{isolation.node} is not out of service by this isolation"
        if entry.when_empty:
            left = (await scheduler.running(isolation)).left
            return f"{left} left on {isolation.node}" if left else ""
    except SchedulerError as error:
        if error.kind == "unreachable":
            raise _AwayError(str(error)) from None
        return str(error)
    return ""
