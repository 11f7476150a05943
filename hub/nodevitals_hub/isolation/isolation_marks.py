"""Finds marks of isolations that have ended, or that this hub does not have.

In: the nodes that carry a mark, from the scheduler. Out: each late mark is removed once, and its
node returned. A scheduler may execute a write that it has not answered at any later time, also
after the isolation has ended; without this, the node would stay out of service for ever.
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
    """A parsed mark; `isolation` is the isolation its id refers to."""
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
        """The ids of marks that this hub does not remove, by node."""

    @property
    def problem(self) -> str:
        """Why marks could not be searched, or which are foreign, in one line."""
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
        """Why the last search was not complete."""
        return None if self._failure is None else self._failure.kind

    async def look(self, scheduler: Scheduler) -> None:
        """Search for marks when the next search is due. Raises StoreError."""
        now = self._clock.monotonic()
        if now < self._next:
            return
        self._next = now + LOOK_SECONDS
        before = self.problem
        try:
            marked = await scheduler.marked(await self._book.recent())
        except SchedulerError as error:
            self._failure = error
        else:
            self._failure = None
            await self._sort(scheduler, marked)
        if self.problem and self.problem != before:
            log.warning("isolations: %s", self.problem)

    async def is_late(self, scheduler: Scheduler, node: str) -> bool:
        """Whether a late mark keeps a node out of service; the next search then starts at once."""
        try:
            state = (await scheduler.states([node])).get(node)
        except SchedulerError:
            return False
        if state is None or not state.mark:
            return False
        late = meaning(node, state, await self._book.get(state.mark)) == "late"
        if late:
            self._next = self._clock.monotonic()
        return late

    async def _sort(self, scheduler: Scheduler, marked: Mapping[str, NodeState]) -> None:
        foreign = {}
        for node, state in sorted(marked.items()):
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
            if error.kind not in ("taken", "unknown_node"):  # with these, the mark is gone
                self._failure = error
                self._next = self._clock.monotonic() + RETRY_SECONDS
            return
        now = self._clock.time()
        await self._book.change(isolation.id, lambda old: acts.returned_late(old, now))
