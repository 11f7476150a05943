"""Which targets are due: by the agenda, and by the room for another process.

In: targets whose lifecycle or samples have changed. Out: the targets to attend to now, and how
long the loop may sleep. Pure, but for the clock's time that it is given.
"""

from __future__ import annotations

import heapq
import math
from collections import deque
from collections.abc import Callable, Iterator
from itertools import count
from typing import Generic, TypeVar

from nodevitals.engine.lifecycle import Phase
from nodevitals.engine.target import Target

# How often the age of an overdue run, or of timeouts in a row, is exposed anew.
OVERDUE_SECONDS = 1.0
T = TypeVar("T")


class Agenda(Generic[T]):
    """Which target is due next: thousands of targets cost the loop no more than a few.

    A heap with one valid entry per target; entries that were replaced are skipped.
    """

    def __init__(self) -> None:
        self._heap: list[tuple[float, int, T]] = []
        self._times: dict[T, float] = {}
        self._order = count()

    def put(self, target: T, time: float) -> None:
        """Make a target due at this time and no other; at infinity: not at all."""
        if self._times.get(target, math.inf) == time:
            return
        if time == math.inf:
            self._times.pop(target, None)
            return
        self._times[target] = time
        heapq.heappush(self._heap, (time, next(self._order), target))

    def next(self) -> float:
        """When the first target is due; infinity where none is."""
        while self._heap and self._times.get(self._heap[0][2]) != self._heap[0][0]:
            heapq.heappop(self._heap)
        return self._heap[0][0] if self._heap else math.inf

    def due(self, now: float) -> list[T]:
        """Take out the targets that are due."""
        found = []
        while self.next() <= now:
            target = heapq.heappop(self._heap)[2]
            del self._times[target]
            found.append(target)
        return found


class Schedule:
    """`room`: when another process may start, given now: `Processes.room`."""

    def __init__(self, room: Callable[[float], float]) -> None:
        self._room = room
        self._agenda: Agenda[Target] = Agenda()
        self._held: deque[Target] = deque()
        """Targets that wait for room, the first that was due first."""
        self.loading = True
        """Whether states may still be loaded: persistent targets wait for them."""

    def plan(self, target: Target, now: float) -> None:
        """Note what comes next for a target; to be called when that may have changed."""
        late = target.lifecycle.overdue(now) > 0 or target.unanswered_seconds(now) > 0
        if not late:
            target.show_overdue_at = math.inf
        elif not now < target.show_overdue_at < math.inf:
            # All such targets at the same moment, for one publication.
            target.show_overdue_at = OVERDUE_SECONDS * (now // OVERDUE_SECONDS + 1)
        waits = target.held or (self.loading and target.spec.persistent)
        wake = math.inf if waits else target.lifecycle.wake
        fresh = math.inf if target.fresh_until == -math.inf else target.fresh_until
        self._agenda.put(target, min(wake, fresh, target.show_overdue_at))

    def due(self, now: float) -> Iterator[Target]:
        """The targets to attend to now; each is to be planned again."""
        yield from self._agenda.due(now)
        while self._held and self._room(now) <= now:
            target = self._held.popleft()
            target.held = False
            yield target

    def hold(self, target: Target, now: float) -> bool:
        """Whether a target that is due must wait for room; it then comes when it may start."""
        starts = target.lifecycle.phase is Phase.WAITING and target.lifecycle.wake <= now
        if not starts or target.held or target.spec.problem:
            return target.held
        if self._room(now) > now:
            target.held = True
            self._held.append(target)
        return target.held

    def wake(self, now: float) -> float:
        """When `due` may next return something, but for changes."""
        room = self._room(now) if self._held else math.inf
        return min(self._agenda.next(), room)
