"""Decides when each target runs, and when the snapshot is published.

In: targets whose lifecycle or samples have changed, the hub's leases, and the time. Out: the
targets to handle now, the interval of each, and how long the loop may sleep.
"""

from __future__ import annotations

import heapq
import math
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from itertools import count
from typing import Generic, TypeVar

from nodevitals.engine.lifecycle import Phase
from nodevitals.engine.target import Target
from nodevitals.exposition import Snapshot
from nodevitals.state.history import HistoryProbe
from nodevitals.wire import Lease, LeaseReply, LeaseState, ProtocolError, decode, encode

# Time between two updates of the exposed age of an overdue run, or of timeouts in a row.
OVERDUE_SECONDS = 1.0
# Hardware that is absent and not expected is looked for after twice as long each time, up to this:
# most looks need a process, and a node without accelerators would spend half of its CPU time on
# them.
ABSENT_SECONDS = 300.0
# The interval under a lease.
LEASE_INTERVAL_SECONDS = 1.0
# A run may take half of the interval: the other half is left to the node.
DURATIONS_PER_INTERVAL = 2.0
# Each run of a target without a resident process is a fork.
MAX_LEASED_TARGETS = 16
# Results within this time are published together: those of several targets, and a run's counts
# once they are written. A publication joins and compresses everything, so there is at most one per
# four seconds, unless results come more often than that.
PUBLISH_SECONDS = 0.1
LONGEST_SECONDS = 4.0
INTERVAL_SHARE = 4 / 15
# Largest share of the loop's time: publishing thousands of targets takes a tenth of a second.
PUBLISH_SHARE = 0.1
T = TypeVar("T")


class Agenda(Generic[T]):
    """Finds the target that is due next: thousands of targets cost the loop no more than a few.

    A heap with one valid entry per target; replaced entries are skipped.
    """

    def __init__(self) -> None:
        self._heap: list[tuple[float, int, T]] = []
        self._times: dict[T, float] = {}
        self._order = count()

    def put(self, target: T, time: float) -> None:
        """Make a target due at this time only; infinity: never."""
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
        due = []
        while self.next() <= now:
            target = heapq.heappop(self._heap)[2]
            del self._times[target]
            due.append(target)
        return due


class Schedule:
    """Plans all targets. `room` returns, for a time, when another process may start."""

    def __init__(self, room: Callable[[float], float]) -> None:
        self._room = room
        self._agenda: Agenda[Target] = Agenda()
        self._held: deque[Target] = deque()
        """Targets that wait for room, the first that was due first."""
        self.loading = True
        """Whether states may still be loaded: persistent targets wait for them."""

    def plan(self, target: Target, now: float) -> None:
        """Plan what comes next for a target; call it when that may have changed."""
        late = target.lifecycle.overdue(now) > 0 or target.unanswered_seconds(now) > 0
        if not late:
            target.show_overdue_at = math.inf
        elif not now < target.show_overdue_at < math.inf:
            # The same moment for all such targets, so that they are published together.
            target.show_overdue_at = OVERDUE_SECONDS * (now // OVERDUE_SECONDS + 1)
        waits = target.held or (self.loading and target.spec.persistent)
        wake = math.inf if waits else target.lifecycle.wake
        fresh = math.inf if target.fresh_until == -math.inf else target.fresh_until
        self._agenda.put(target, min(wake, fresh, target.show_overdue_at))

    def due(self, now: float) -> Iterator[Target]:
        """The targets to handle now; the caller plans each of them again."""
        yield from self._agenda.due(now)
        while self._held and self._room(now) <= now:
            target = self._held.popleft()
            target.held = False
            yield target

    def hold(self, target: Target, now: float) -> bool:
        """Whether a due target must wait for other processes; `due` returns it in its turn."""
        starts = target.lifecycle.phase is Phase.WAITING and target.lifecycle.wake <= now
        if not starts or target.held or target.spec.problem:
            return target.held
        if self._room(now) > now:
            target.held = True
            self._held.append(target)
        return target.held

    def wake(self, now: float) -> float:
        """When `due` may next return something, unless something changes before."""
        room = self._room(now) if self._held else math.inf
        return min(self._agenda.next(), room)


class Leases:
    """The active lease, if any: on the hub's request, probes run every second for some time. A
    lease is only in memory, so it ends with the agent.
    """

    def __init__(self) -> None:
        self._probes: frozenset[str] = frozenset()
        self.wake = math.inf
        """When the lease ends."""

    def take(self, sender: Target, body: bytes, targets: Iterable[Target], now: float) -> bytes:
        """Replace the lease with a new one. Returns the reply to its sender."""
        try:
            lease = decode(body, Lease)
        except ProtocolError:
            lease = Lease((), 0.0)
        listed = list(targets)
        states = {name: self._state(name, sender, listed) for name in lease.probes}
        lasting = ("active", "failing", "slow")  # the next run may be ok, or shorter
        self._probes = frozenset(name for name, state in states.items() if state in lasting)
        self.wake = now + lease.seconds if self._probes else math.inf
        return encode(LeaseReply(lease.number, states))

    def expired(self, now: float) -> bool:
        """Whether the lease has ended just now."""
        if now < self.wake:
            return False
        self._probes, self.wake = frozenset(), math.inf
        return True

    def interval(self, target: Target, now: float) -> float:
        """The time between two runs of a target, in seconds."""
        configured = target.spec.timing.interval_seconds
        if target.absent:
            return max(configured, min(configured * 2.0**target.absences, ABSENT_SECONDS))
        if target.spec.probe not in self._probes or now >= self.wake:
            return configured
        return min(_leased(target), configured)

    def _state(self, name: str, sender: Target, targets: Iterable[Target]) -> LeaseState:
        if name in (HistoryProbe.name, sender.spec.probe):
            return "excluded"
        own = [target for target in targets if target.spec.probe == name and not target.absent]
        if not own:
            return "off"
        if len(own) > MAX_LEASED_TARGETS:
            return "targets"
        intervals = [(_leased(target), target.spec.timing.interval_seconds) for target in own]
        if any(leased < configured for leased, configured in intervals):
            return "active"
        return "failing" if all(leased == math.inf for leased, _ in intervals) else "slow"


def _leased(target: Target) -> float:
    """The interval that a lease allows. A target whose last run failed keeps its configured
    interval: a lease must not call a hanging driver, or kill its process, more often.
    """
    if target.last is None or target.last.outcome != "ok":
        return math.inf
    needed = math.ceil(DURATIONS_PER_INTERVAL * target.last.duration_seconds)
    return max(LEASE_INTERVAL_SECONDS, float(needed))


class Publisher:
    """Publishes a snapshot soon after a change, but not too often."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot
        self._took_seconds = 0.0
        self._wanted = math.inf
        self._allowed = 0.0
        self.wake = math.inf
        """When `publish` is due next, once something has changed."""

    def expect(self, now: float, interval_seconds: float) -> None:
        """Publish a result within a share of its target's interval."""
        wait = min(max(PUBLISH_SECONDS, interval_seconds * INTERVAL_SHARE), LONGEST_SECONDS)
        self._wanted = min(self._wanted, now + wait)

    def publish(self, now: float, eager: bool) -> bool:
        """Publish if it is due; `eager`: do not wait for further results. Returns whether it was
        due.
        """
        if not self._snapshot.changed:
            return False
        if self.wake == math.inf:
            self._allowed = now + self._took_seconds / PUBLISH_SHARE
            self._wanted = min(self._wanted, now + LONGEST_SECONDS)
        self.wake = self._allowed if eager else max(self._allowed, self._wanted)
        if now < self.wake:
            return False
        self.wake = self._wanted = math.inf
        started = time.thread_time()
        self._snapshot.publish(now)
        self._took_seconds = time.thread_time() - started
        return True
