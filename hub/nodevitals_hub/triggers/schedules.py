"""Starts the checks of the schedules, on idle nodes, within their windows and budgets.

In: the settings, the stored checks, the clock. Out: checks with the requester `schedule`, and the
state of each schedule. Only the current slot is started, never a past one. The idempotency key of a
slot makes sure that it is started once, even if the hub is killed.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import AsyncIterator, Collection, Iterator
from typing import TYPE_CHECKING, Any

import msgspec
from litestar import Request, Response, get

from nodevitals.checks.model import Check, CheckRequest, Requester
from nodevitals_hub import families
from nodevitals_hub.checks.check_requests import RefusedError
from nodevitals_hub.checks.newest import Sample
from nodevitals_hub.settings import schedule_times
from nodevitals_hub.settings.hub import ScheduleSettings
from nodevitals_hub.settings.schedule_times import ScheduledCheck
from nodevitals_hub.store.check_store import StoreError
from nodevitals_hub.triggers.schedule_book import Book, ScheduleState
from nodevitals_hub.web.errors import page

if TYPE_CHECKING:
    from nodevitals_hub.context import Hub

SCHEDULES_PATH = "/api/v1/schedules"
TICK_SECONDS = 0.5
PAGE = 1000

log = logging.getLogger(__name__)


class Schedule(msgspec.Struct, frozen=True, kw_only=True):
    """A schedule and its state, as the REST API and the page show it. Times are seconds since the
    epoch.
    """

    name: str
    check: CheckRequest
    every: float
    window: str
    node_hours: float | None
    spent_node_hours: float
    """Within the last 7 days."""
    next_start: float
    reason: str
    """Why the last start that was due did not take place; '' after a start."""
    last: ScheduledCheck | None
    last_success: float | None
    """When the last check with a result ended."""


class _NotNowError(Exception):
    """A check that is due cannot start now; the text is the reason."""


class Schedules:
    """All schedules of a hub."""

    def __init__(self, hub: Hub) -> None:
        self._hub = hub
        self._books: dict[str, Book] = {}
        self._open: dict[str, Collection[str]] = {}
        """The nodes of each check that has not ended, by any requester."""
        self._kept: dict[str, bytes] = {}

    def all(self) -> list[Schedule]:
        """The schedules of the settings, by name."""
        now = time.time()
        return [self._shown(name, schedule, now) for name, schedule in self._settings()]

    def samples(self) -> Iterator[Sample]:
        """What /metrics shows."""
        for schedule in self.states():
            name = (schedule.name,)
            yield families.SCHEDULE_INTERVAL, name, schedule.every
            yield families.SCHEDULE_LONGEST, name, schedule.longest
            yield families.SCHEDULE_ENABLED, name, schedule.enabled
            if schedule.last_success is not None:
                yield families.SCHEDULE_SUCCESS, name, schedule.last_success
            if schedule.next_start is not None:
                yield families.SCHEDULE_NEXT, name, schedule.next_start

    def states(self) -> list[ScheduleState]:
        """The states of the schedules whose interval is known."""
        return [
            ScheduleState(
                name=schedule.name,
                every=schedule.every,
                longest=schedule_times.timing_of(schedule).longest,
                enabled=self._book(schedule.name).since,
                last_success=schedule.last_success,
                next_start=schedule.next_start,
            )
            for schedule in self.all()
            if self._book(schedule.name).every is not None
        ]

    def _settings(self) -> list[tuple[str, ScheduleSettings]]:
        return sorted(self._hub.settings.schedules.items())

    def _shown(self, name: str, schedule: ScheduleSettings, now: float) -> Schedule:
        book = self._book(name)
        return Schedule(
            name=name,
            check=schedule.check,
            every=schedule.every,
            window=schedule.window,
            node_hours=schedule.node_hours,
            spent_node_hours=schedule_times.spent(book.checks.values(), now),
            next_start=schedule_times.timing_of(schedule).next_start(now, book.done),
            reason=book.reason,
            last=book.last,
            last_success=book.last_success,
        )

    def _book(self, name: str) -> Book:
        return self._books.setdefault(name, Book())

    async def run(self) -> None:
        """Start the checks that are due, until cancelled."""
        changes = self._hub.checks.changes()
        await self._remember()
        works = [
            asyncio.ensure_future(coroutine) for coroutine in (self._follow(changes), self._tick())
        ]
        try:
            done, _ = await asyncio.wait(works, return_when=asyncio.FIRST_COMPLETED)
            for work in done:
                work.result()
        finally:
            for work in works:
                work.cancel()

    async def _remember(self) -> None:
        """Read the earlier checks of the schedules."""
        own: list[Check] = []
        before = ""
        while True:
            page = await self._hub.checks.list(limit=PAGE, before=before)
            own += (check for check in page if check.requester.trigger == "schedule")
            if len(page) < PAGE:
                break
            before = page[-1].id
        self._open.clear()
        self._kept = await self._hub.store.schedules()
        by_name: dict[str, list[Check]] = {name: [] for name, _ in self._settings()}
        for check in reversed(own):
            by_name.setdefault(check.requester.name, []).append(check)
        now = time.time()
        for name, checks in by_name.items():
            self._book(name).begin(self._kept.get(name), checks, now)
        for unfinished in await self._hub.store.unfinished():
            self._take(unfinished.check)

    async def _follow(self, changes: AsyncIterator[Check]) -> None:
        async for check in changes:
            self._take(check)

    def _take(self, check: Check) -> None:
        if check.phase in ("queued", "running"):
            self._open.setdefault(check.id, frozenset(check.request.nodes))
        else:
            self._open.pop(check.id, None)
        if check.requester.trigger == "schedule":
            self._book(check.requester.name).take(check)

    async def _tick(self) -> None:
        while True:
            await self._keep()
            for name, schedule in self._settings():
                book, now = self._book(name), time.time()
                book.forget(now)
                slot = schedule_times.timing_of(schedule).due(now, book.done)
                if slot is not None and book.may_try(slot):
                    await self._try(name, schedule, book, slot)
            await asyncio.sleep(TICK_SECONDS)

    async def _keep(self) -> None:
        """Apply the settings, and store what must outlast this process and the stored checks."""
        now, settings = time.time(), self._hub.settings.schedules
        for name in {*settings, *self._books}:
            self._book(name).set_interval(settings[name].every if name in settings else None, now)
        records = {name: book.record() for name, book in self._books.items()}
        kept = {name: record for name, record in records.items() if record is not None}
        if kept != self._kept:
            with contextlib.suppress(StoreError):  # the next tick tries again
                await self._hub.store.keep_schedules(kept)
                self._kept = kept

    async def _try(self, name: str, schedule: ScheduleSettings, book: Book, slot: int) -> None:
        key = f"schedule-{name}-{slot}"
        try:
            check = await self._hub.store.by_key(key)
            if check is None:
                check = await self._start(name, schedule, slot, key)
        except (RefusedError, StoreError, _NotNowError) as error:
            if str(error) != book.reason:
                log.warning("schedule %s: not started: %s", name, error)
            book.reason = str(error)
            return
        book.settle(slot)
        self._take(check)
        if (check.requester.trigger, check.requester.name) != ("schedule", name):
            by = f"{check.requester.trigger} {check.requester.name}".rstrip()
            book.reason = f"its idempotency key {key} was used by {by} for check {check.id}"

    async def _start(self, name: str, schedule: ScheduleSettings, slot: int, key: str) -> Check:
        """Start a check on the idle nodes. Raises RefusedError and _NotNowError."""
        checks, requester = self._hub.checks, Requester(trigger="schedule", name=name)
        last = self._book(name).last
        if last is not None and last.id in self._open:
            raise _NotNowError(f"its check {last.id} has not ended")
        check = await checks.estimate(schedule.check, requester)
        in_use: list[str] = []
        if check.request.kind != "node":  # a node check only reads metrics
            in_use = list(await self._hub.checks.in_use(check.request))
        if problem := schedule_times.too_few(check.request, in_use):
            raise _NotNowError(problem)
        request = schedule_times.noted(schedule.check, in_use)
        if in_use:
            check = await checks.estimate(request, requester, in_use)
        # The agents may have answered late.
        now, book = time.time(), self._book(name)
        if schedule_times.timing_of(schedule).due(now, book.done) != slot:
            raise _NotNowError("the agents' answers came after its time")
        before = book.checks.values()
        problem = schedule_times.over_limits(schedule, check, before, now) or self._waiting(check)
        if problem:
            raise _NotNowError(problem)
        started = await checks.submit(request, requester, key, in_use)
        log.info("schedule %s: check %s", name, started.id)
        return started

    def _waiting(self, check: Check) -> str:
        """Why the check would wait in the queue, maybe beyond its window; '' where it would not."""
        if len(self._open) >= self._hub.settings.limits.running:
            return f"{len(self._open)} checks run or wait (limits.running)"
        for identity, nodes in self._open.items():
            both = sorted(set(nodes) & set(check.request.nodes))
            if both:
                return f"check {identity} has {both[0]} and has not ended"
        return ""


def handlers(hub: Hub, schedules: Schedules) -> list[Any]:
    """The REST API and the page."""

    @get(SCHEDULES_PATH)
    async def list_schedules() -> list[Schedule]:
        """The schedules of the configuration, by name, with their last and next checks."""
        return schedules.all()

    @get("/schedules", include_in_schema=False)
    async def show(request: Request[Any, Any, Any]) -> Response[str]:
        """The same as a page."""
        cluster = hub.settings.cluster
        return page(request, "schedules.html", schedules=schedules.all(), cluster=cluster)

    return [list_schedules, show]
