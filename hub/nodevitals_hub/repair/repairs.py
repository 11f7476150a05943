"""Starts and follows the repairs that a site has configured for nodes out of service.

In: isolations, settings, Prometheus' answers. Out: objects at the API server, commands, and repairs
in respond.db. Each repair is written before it is started, and started once: its object has its id,
and a command that ran when the hub was killed is not started again.
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
    """The commands that one hub runs."""

    def __init__(self, book: RepairBook) -> None:
        self._book = book
        self._running: dict[str, asyncio.Task[processes.Ended]] = {}

    async def start(self, repair: Repair, now: float) -> None:
        """Start the command of a repair. Raises StoreError."""
        after = await self._book.change(repair, acts.began, "", now)
        if after.state == "started":  # written first: a killed hub cannot know whether it ran
            running = processes.run(after.command, after.timeout)
            self._running[after.id] = asyncio.ensure_future(running)

    async def watch(self, repair: Repair, now: float) -> None:
        """Record the end of a command. Raises StoreError."""
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
            except Exception as error:  # an error of the hub: the command may have succeeded
                log.exception("repair %s", repair.id)
                state, text = "unknown", f"{type(error).__name__} in the hub: see its log"
            await self._book.change(repair, acts.over, state, text, now)
            del self._running[repair.id]

    async def close(self) -> None:
        """End the running commands."""
        tasks = list(self._running.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._running.clear()


Chosen = list[tuple[Isolation, RepairSettings, list[Fault]]]
ACT_SECONDS = 30.0
"""An answer of Prometheus is acted on for so long."""


class _AwayError(Exception):
    """No answer: the other requests of this round would time out too."""


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
        """The isolations whose repairs run: the hub does not return their nodes to service."""
        return {repair.isolation for repair in self.book.running}

    def samples(self) -> Iterable[Sample]:
        """The samples for /metrics; none where no repair is configured or runs."""
        settings = self._hub.settings.out_of_service
        shown = bool(self.book.running) or bool(settings and settings.repairs)
        return self.book.samples() if shown else ()

    async def close(self) -> None:
        """End the commands that run, and close the connections."""
        await self._commands.close()
        await self._objects.close()

    async def watch(self) -> None:
        """Update the running repairs. Raises StoreError."""
        now = self._clock.monotonic()
        elapsed = 0.0 if self._before is None else max(0.0, now - self._before)
        self._before = now
        running = await self.book.follow(self._isolations.open, elapsed)
        for repair in running:
            if repair.target is None:
                await self._commands.watch(repair, self._clock.time())
        objects = [repair for repair in running if repair.target is not None]
        await self._objects.watch(objects, self._clock.time())

    async def begin(
        self,
        scheduler: Scheduler,
        settings: OutOfServiceSettings,
        ask: Callable[[], Awaitable[Seen | None]],
        seen: Seen,
    ) -> None:
        """Start repairs that may begin now, after a new answer of `ask`. Raises StoreError."""
        self._said, self.notes = self.notes, {}
        wanted = [repair for repair in self.book.running if repair.state == "wanted"]
        if not wanted and not await self._chosen(self._view(settings, seen)):
            return
        again = await ask()  # docs/automation.md: once more before the act
        if again is None or self._hub.settings.out_of_service != settings:
            return
        until = self._clock.monotonic() + ACT_SECONDS
        view = self._view(settings, again)
        try:
            for repair in wanted:
                if self._clock.monotonic() <= until:
                    await self._resume(scheduler, view, repair)
            for isolation, entry, faults in await self._chosen(view):
                if self._clock.monotonic() <= until:
                    await self._begin(scheduler, view, isolation, entry, faults)
        except _AwayError as error:
            self._tell("", str(error))

    def _view(self, settings: OutOfServiceSettings, seen: Seen) -> View:
        members = {member.name: member for member in self._hub.checks.members()}
        return View(seen, members, settings, self._isolations.ledger)

    async def _chosen(self, view: View) -> Chosen:
        """Repairs that may begin: the oldest isolation first, in the order of the settings."""
        if not view.settings.repairs:
            return []
        followed = [
            isolation for isolation in await self._isolations.followed() if view.holds(isolation)
        ]
        known = {repair.id for repair in await self.book.known(followed)}
        chosen: Chosen = []
        for isolation in followed:
            for entry in view.settings.repairs:
                faults = view.faults(isolation, entry)
                if faults and plan.identity_of(isolation, entry) not in known:
                    chosen.append((isolation, entry, faults))
        return chosen

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
        """The limit that excludes a repair, or ''; limits are checked again when it is written."""
        if isolation.id in self.busy:
            return "another repair of the node runs"
        running = sum(repair.name == entry.name for repair in self.book.running)
        if not entry.dry_run and running >= entry.at_most:
            return f"limit: {running} run (at_most: {entry.at_most})"
        return ""

    def _planned(
        self, identity: str, entry: RepairSettings, values: dict[str, str]
    ) -> tuple[Planned | None, str]:
        """What is started, or why it cannot be; neither where its file cannot be read now."""
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
        """Start a repair that is not known to have started, if it may still begin."""
        now = self._clock.time()
        if repair.target is not None:
            is_there = await self._objects.is_there(repair, now)
            if is_there is None and self._objects.is_away:
                raise _AwayError("no answer from the API server")
            if is_there is not False:
                return
        isolations = [
            isolation
            for isolation in await self._isolations.followed()
            if isolation.id == repair.isolation
        ]
        entries = [entry for entry in view.settings.repairs if entry.name == repair.name]
        faults = view.faults(isolations[0], entries[0]) if isolations and entries else []
        if not faults or entries[0].dry_run or bool(entries[0].command) != (repair.target is None):
            text = "its conditions ended before it was started"
            await self.book.change(repair, acts.over, "canceled", text, now)
            return
        reason = await _obstacle(scheduler, isolations[0], entries[0])
        if reason:
            await self.book.change(repair, acts.noted, reason)
            return
        values = plan.values_of(isolations[0], faults, repair.id, self._hub.settings.cluster)
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
    """Why the scheduler does not allow a repair of the node now; "" where it does."""
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
