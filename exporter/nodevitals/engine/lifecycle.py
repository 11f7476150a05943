"""Decides when a target runs, and how a run that does not end is stopped.

In: times and events. Out: commands. It holds no process and no clock: the supervisor asks
`command` what to do now, executes it, and reports the outcome. At most one process lives per
target; one that cannot be reaped is not replaced.

    WAITING ─► RUNNING ─► LINGERING ─► WAITING        a result, then the process ends
                  │ deadline    (a resident: IDLE until its next run)
                  ▼
             TERMINATING ─► KILLED ─► STUCK           each until the process is reaped
"""

from __future__ import annotations

import math
import signal
from enum import Enum

from nodevitals.probe import Timing

FIRST_RUN_SECONDS = 0.5
GRACE_SECONDS = 2.0
"""Between TERM and KILL: a driver that is killed in a call may leave the device unusable."""
REAP_SECONDS = 1.0
"""Between a KILL that was delivered and giving up: what lives on is in uninterruptible sleep."""
LONGEST_BACKOFF_SECONDS = 30.0


class Phase(Enum):
    """Where a target's process is."""

    WAITING = "no process"
    RUNNING = "a run in flight"
    IDLE = "a resident process between runs"
    LINGERING = "answered, process not yet reaped"
    TERMINATING = "past its deadline, sent TERM"
    KILLED = "sent KILL"
    STUCK = "not reaped after KILL"


class Command(Enum):
    """What to do now."""

    START = "start a process and run"
    RUN = "run in the resident process"
    TERM = "send TERM"
    KILL = "send KILL"
    ABANDON = "count it as stuck"


class Lifecycle:
    """One target's schedule and phase. `spread` in [0, 1) is the place of its runs in the interval;
    the first run of a process may take `start_seconds` longer than the timeout.
    """

    def __init__(
        self, timing: Timing, spread: float, now: float, start_seconds: float = 0.0
    ) -> None:
        self.timing = timing
        self.interval_seconds = timing.interval_seconds
        """Time between two runs: that of the timing, or a shorter one under a lease."""
        self._start_seconds = start_seconds
        self.allowed_seconds = timing.timeout_seconds
        """What the run in flight, or the last one, may take."""
        self.phase = Phase.WAITING
        self._spread = spread
        self.began = now
        """When the run in flight, or the last one, began."""
        self._origin = now + spread * timing.interval_seconds
        self._due = self._soon(now)
        self._scheduled = self._due
        self._limit = math.inf
        self._failures = 0
        self._answered = False
        self._leaving = False
        self._outdated = False

    @property
    def wake(self) -> float:
        """When `command` may next return something."""
        if self.phase in (Phase.WAITING, Phase.IDLE):
            return math.inf if self._leaving else self._due
        return self._limit

    @property
    def due(self) -> float:
        """When the next run is due; during a run, when that run was due."""
        return self._due

    @property
    def gone(self) -> bool:
        """Whether the target was retired and its process is reaped."""
        return self._leaving and self.phase is Phase.WAITING

    def overdue(self, now: float) -> float:
        """Seconds since the start of a run that is past its deadline, otherwise 0."""
        late = self.phase in (Phase.TERMINATING, Phase.KILLED, Phase.STUCK)
        return now - self.began if late and not self._answered else 0.0

    def command(self, now: float, last_signal: int = signal.SIGKILL) -> Command | None:
        """What to do now; each command is returned once, None where nothing is due. `last_signal`
        is the last signal that was delivered to the process.
        """
        if now < self.wake:
            return None
        if self.phase in (Phase.WAITING, Phase.IDLE):
            command = Command.START if self.phase is Phase.WAITING else Command.RUN
            extra = self._start_seconds if command is Command.START else 0.0
            self.allowed_seconds = self.timing.timeout_seconds + extra
            self._enter(Phase.RUNNING, now + self.allowed_seconds)
            self.began = now
            self._scheduled = self._due
            self._answered = False
            self._outdated = self._outdated and command is Command.RUN
            return command
        if self.phase in (Phase.RUNNING, Phase.LINGERING):
            self._enter(Phase.TERMINATING, now + GRACE_SECONDS)
            return Command.TERM
        if self.phase is Phase.TERMINATING:
            self._enter(Phase.KILLED, now + REAP_SECONDS)
            return Command.KILL
        if last_signal != signal.SIGKILL:  # not delivered yet: the process is not known to be stuck
            self._limit = now + REAP_SECONDS
            return None
        self._enter(Phase.STUCK, math.inf)
        return Command.ABANDON

    def answered(self, now: float, stays: bool) -> None:
        """A result came in time; `stays`: the process waits for another run."""
        self._answered = True
        self._failures = 0
        self._plan(now)
        stays = stays and not (self._leaving or self._outdated)
        self._enter(Phase.IDLE if stays else Phase.LINGERING, now + GRACE_SECONDS)

    def broke(self, now: float) -> None:
        """The process sent invalid data: end it like one past its deadline."""
        if self.phase not in (Phase.RUNNING, Phase.IDLE, Phase.LINGERING):
            return  # it is being ended
        self._answered = False
        self._enter(Phase.RUNNING, now)

    def exited(self, now: float, again: bool = False) -> bool:
        """The process is reaped. Returns whether it failed: it ended without a result, or without
        a command to end.

        `again`: retry at once after a first failure: the process was lost with its fork server, the
        next run will avoid the call in which this one hung, or that call has returned.
        """
        failed = not self._answered or self.phase is Phase.IDLE
        if failed:
            self._failures += 1
            self.interval_seconds = self.timing.interval_seconds
            self._plan(now)
            if again and self._failures == 1:
                self._due = now
        self._enter(Phase.WAITING, math.inf)
        return failed

    def hurry(self, now: float, waited: bool = False) -> None:
        """Run as soon as possible, but not before the end of a back-off; `waited`: there is no
        back-off, as its runs failed only because they had to wait for the old process.
        """
        self._failures = 0 if waited else self._failures
        if self._failures == 0:
            self._due = min(self._due, now)

    def change(self, timing: Timing, now: float) -> None:
        """Use another timing: the next run comes soon, in a new process."""
        self.timing = timing
        self.interval_seconds = timing.interval_seconds
        self._origin = now + self._spread * timing.interval_seconds
        self._outdated = True
        if self.phase in (Phase.WAITING, Phase.IDLE, Phase.LINGERING):
            self._due = self._soon(now)
        if self.phase is Phase.IDLE:
            self._enter(Phase.LINGERING, now)

    def pace(self, interval_seconds: float, now: float) -> None:
        """Run at another interval, in the same process and with the same deadlines."""
        if interval_seconds == self.interval_seconds:
            return
        self.interval_seconds = interval_seconds
        if self.phase in (Phase.WAITING, Phase.IDLE, Phase.LINGERING) and not self._failures:
            self._plan(now)

    def retire(self, now: float) -> None:
        """Start no more runs, and end a live process."""
        self._leaving = True
        if self.phase in (Phase.RUNNING, Phase.IDLE):
            self._answered = True  # its result is not used any more
            self._enter(Phase.LINGERING, now)

    def _plan(self, now: float) -> None:
        """Plan the next run at its place in the interval; after a failed process not before the end
        of the back-off.

        Missed runs are skipped: after a suspend, a node does not run everything at once.
        """
        interval = self.interval_seconds
        place = math.floor((now - self._origin) / interval) + 1
        if self._failures > 1:
            wait = min(LONGEST_BACKOFF_SECONDS, interval * 2.0 ** min(self._failures - 1, 10))
            # Counted from the planned start of the run: the real start is always a little later.
            allowed = (self._scheduled + wait - self._origin) / interval
            place = max(place, math.ceil(allowed - 1e-6))
        self._due = self._origin + place * interval
        if self._outdated and not self._failures:  # this run had the old settings
            self._due = self._soon(now)

    def _soon(self, now: float) -> float:
        return now + self._spread * min(FIRST_RUN_SECONDS, self.timing.interval_seconds)

    def _enter(self, phase: Phase, limit: float) -> None:
        self.phase = phase
        self._limit = limit
