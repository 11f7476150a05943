"""Marks of ours on nodes whose isolation has ended, or that no isolation here has.

In: the nodes that carry a mark, by the scheduler. Out: late ones are removed, and their nodes
returned, once each. A write that the scheduler has not answered may be executed at any time later,
also after the isolation has ended; without this, its node would stay out of service for ever.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Literal

from nodevitals.linux.host import Clock
from nodevitals_hub.isolation import isolation_acts as acts
from nodevitals_hub.isolation.isolation_book import Book
from nodevitals_hub.isolation.isolation_states import OUT_STATES
from nodevitals_hub.isolation.schedulers.schedulers import (
    FailureKind,
    NodeState,
    Scheduler,
    SchedulerError,
)
from nodevitals_hub.records import Isolation

LOOK_SECONDS = 300.0
RETRY_SECONDS = 60.0
NAMED = 3
Meaning = Literal["own", "late", "foreign"]

log = logging.getLogger(__name__)


def meaning(node: str, state: NodeState, isolation: Isolation | None) -> Meaning:
    """What a mark says; `isolation`: that of its id."""
    if isolation is None or isolation.node != node or isolation.dry_run:
        return "foreign"  # of another hub, or of a database that was lost
    if isolation.state in OUT_STATES:
        return "own"
    is_late = isolation.late_return is None and (state.in_service or not isolation.taken)
    return "late" if is_late else "foreign"


class Marks:
    """The marks of one cluster."""

    def __init__(self, book: Book, clock: Clock) -> None:
        self._book, self._clock = book, clock
        self._next = clock.monotonic()
        self._failure: SchedulerError | None = None
        self.foreign: dict[str, str] = {}
        """Nodes with a mark that is not removed here, and its id."""

    @property
    def problem(self) -> str:
        """What is wrong with marks, in one line."""
        if self._failure is not None:
            return f"marks of ended isolations are not found: {self._failure}"
        if not self.foreign:
            return ""
        names = [f"{node} ({mark[:40]})" for node, mark in sorted(self.foreign.items())]
        more = f" and {len(names) - NAMED} more" if len(names) > NAMED else ""
        what = "marked by another hub or by hand, and left alone"
        return f"{what}: {', '.join(names[:NAMED])}{more}"

    @property
    def failure(self) -> FailureKind | None:
        """Why the last search was not done to its end."""
        return None if self._failure is None else self._failure.kind

    async def look(self, scheduler: Scheduler) -> None:
        """Look for marks, if it is time to. Raises StoreError."""
        now = self._clock.monotonic()
        if now < self._next:
            return
        self._next = now + LOOK_SECONDS
        before = self.problem
        try:
            found = await scheduler.marked(await self._book.recent())
        except SchedulerError as error:
            self._failure = error
        else:
            self._failure = None
            await self._sort(scheduler, found)
        if self.problem and self.problem != before:
            log.warning("isolations: %s", self.problem)

    async def is_late(self, scheduler: Scheduler, node: str) -> bool:
        """Whether a node is out of service by a late mark, which is then removed next."""
        try:
            state = (await scheduler.states([node])).get(node)
        except SchedulerError:
            return False
        if state is None or not state.mark:
            return False
        found = meaning(node, state, await self._book.get(state.mark)) == "late"
        if found:
            self._next = self._clock.monotonic()
        return found

    async def _sort(self, scheduler: Scheduler, found: Mapping[str, NodeState]) -> None:
        foreign = {}
        for node, state in sorted(found.items()):
            isolation = await self._book.get(state.mark)
            what = meaning(node, state, isolation)
            if what == "foreign":
                foreign[node] = state.mark
            elif what == "late" and isolation is not None:
                await self._remove(scheduler, isolation)
        self.foreign = foreign

    async def _remove(self, scheduler: Scheduler, isolation: Isolation) -> None:
        try:
            await scheduler.restore(isolation)
        except SchedulerError as error:
            if error.kind not in ("taken", "unknown_node"):  # what is gone needs nothing
                self._failure = error
                self._next = self._clock.monotonic() + RETRY_SECONDS
            return
        now = self._clock.time()
        await self._book.change(isolation.id, lambda old: acts.returned_late(old, now))
