"""Which target is due next: so that thousands of targets cost the loop no more than a few.

In: a target and the time at which it is due. Out: the targets that are due, the earliest first.
Pure: it holds no clock.
"""

from __future__ import annotations

import heapq
import math
from itertools import count
from typing import Generic, TypeVar

T = TypeVar("T")


class Agenda(Generic[T]):
    """A heap with one valid entry per target; entries that were replaced are skipped."""

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
