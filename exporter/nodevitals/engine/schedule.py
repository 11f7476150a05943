"""Which targets are due: by the agenda, and by the room for another process.

In: targets whose lifecycle or samples have changed. Out: the targets to attend to now, and how
long the loop may sleep. Pure, but for the clock's time that it is given.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Iterator

from nodevitals.engine.agenda import Agenda
from nodevitals.engine.lifecycle import Phase
from nodevitals.engine.target import Target

# How often the age of an overdue run, or of timeouts in a row, is exposed anew.
OVERDUE_SECONDS = 1.0
# For the shared process: most runs take less time than a fork.
SHARED_PATIENCE_SECONDS = 0.1


class Schedule:
    """`room`: when another process may start, given now: `Processes.room`. `keeper_free`: when a
    target may start whose probe is kept open in a shared process; `shared_free`: when another one
    may that shares a process.
    """

    def __init__(
        self,
        room: Callable[[float], float],
        keeper_free: Callable[[float], float],
        shared_free: Callable[[float], float],
    ) -> None:
        self._room = room
        self._keeper_free = keeper_free
        self._shared_free = shared_free
        self._agenda: Agenda[Target] = Agenda()
        self._held: deque[Target] = deque()
        """Targets that wait for room, the first that was due first."""
        self._held_to_share: deque[Target] = deque()
        """Those that wait until a shared process is free."""
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
        for _ in range(len(self._held_to_share)):
            target = self._held_to_share.popleft()
            if self._share_at(target, now) <= now:
                target.held = False
                yield target
            else:
                self._held_to_share.append(target)

    def hold(self, target: Target, now: float) -> bool:
        """Whether a target that is due must wait for room, or for a shared process; it then comes
        when it may start.
        """
        starts = target.lifecycle.phase is Phase.WAITING and target.lifecycle.wake <= now
        if not starts or target.held or target.spec.problem:
            return target.held
        if self._share_at(target, now) > now:
            target.held = True
            self._held_to_share.append(target)
        elif self._room(now) > now:
            target.held = True
            self._held.append(target)
        return target.held

    def wake(self, now: float) -> float:
        """When `due` may next return something, but for changes."""
        room = self._room(now) if self._held else math.inf
        share = min((self._share_at(one, now) for one in self._held_to_share), default=math.inf)
        return min(self._agenda.next(), room, share)

    def _share_at(self, target: Target, now: float) -> float:
        """Until when a target that is due waits for a shared process."""
        if not target.sharing or target.failing:
            return now
        if target.spec.kept_open:
            return self._keeper_free(now)
        return min(self._shared_free(now), target.lifecycle.due + SHARED_PATIENCE_SECONDS)
