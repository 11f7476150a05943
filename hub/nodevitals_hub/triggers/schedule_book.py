"""The history of a schedule: its checks, the slots with a check, why the last start failed.

In: checks as they change, slots. Out: the data for the next decision. Bounded.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterable
from typing import NamedTuple

import msgspec

from nodevitals.checks.model import Check
from nodevitals_hub.settings import schedule_times
from nodevitals_hub.settings.schedule_times import ScheduledCheck

RETRY_SECONDS = 60.0
MAX_SLOTS = 10_000


class ScheduleState(NamedTuple):
    """A schedule. Times are seconds since the epoch; None where there is none."""

    name: str
    every: float
    longest: float
    """Longest time between two starts."""
    enabled: float
    last_success: float | None
    next_start: float | None


class Kept(msgspec.Struct, frozen=True, kw_only=True):
    """The stored part, which outlasts restarts and the removal of old checks. Times are seconds
    since the epoch.
    """

    every: float
    since: float
    last_success: float | None = None


_encode = msgspec.json.Encoder().encode
_kept = msgspec.json.Decoder(Kept).decode


class Book:
    """The history of one schedule."""

    def __init__(self) -> None:
        self.every: float | None = None
        """The interval; None while the settings do not have the schedule."""
        self.since = 0.0
        """When the settings got the schedule with this interval."""
        self.done: dict[int, None] = {}
        """Slots in which the schedule started a check, in the order of the starts."""
        self.reason = ""
        self.last: ScheduledCheck | None = None
        self.last_success: float | None = None
        self.checks: dict[str, ScheduledCheck] = {}
        self._tried: int | None = None
        self._retry = 0.0

    def begin(self, record: bytes | None, before: Iterable[Check], now: float) -> None:
        """Begin with the stored record and the stored checks. Times in the future were written
        while the clock was wrong.
        """
        kept = None
        if record is not None:
            with contextlib.suppress(msgspec.MsgspecError):
                kept = _kept(record)
        if kept is not None:
            self.every, self.since = kept.every, min(kept.since, now)
        ended = [kept.last_success if kept else None]
        for check in before:
            self.take(check)
            ended.append(_success(self.checks[check.id]))
        past = [moment for moment in ended if moment is not None and moment <= now]
        self.last_success = max(past, default=None)

    def set_interval(self, every: float | None, now: float) -> None:
        """Set the interval of the settings, or None. A new interval starts a new count."""
        if every != self.every:
            self.every, self.since = every, now
        # After the clock was set back, a late schedule would otherwise stay unnoticed.
        self.since = min(self.since, now)
        if self.last_success is not None:
            self.last_success = min(self.last_success, now)

    def record(self) -> bytes | None:
        """The record to store; None where the settings do not have the schedule."""
        if self.every is None:
            return None
        kept = Kept(every=self.every, since=self.since, last_success=self.last_success)
        return _encode(kept)

    def take(self, check: Check) -> None:
        """Add a check, or its change."""
        scheduled = schedule_times.scheduled(check)
        if check.id not in self.checks or (self.last is not None and self.last.id == check.id):
            self.last = scheduled
        self.checks[check.id] = scheduled
        if _success(scheduled) is not None:
            self.last_success = scheduled.ended

    def forget(self, now: float) -> None:
        """Remove checks that no longer count for a budget."""
        old = [
            scheduled.id
            for scheduled in self.checks.values()
            if scheduled is not self.last
            and abs(now - scheduled.created) >= schedule_times.BUDGET_SECONDS
        ]
        for identity in old:
            del self.checks[identity]

    def settle(self, slot: int) -> None:
        """Record that a slot has its check."""
        self.done[slot] = None
        self.reason = ""
        if len(self.done) > MAX_SLOTS:
            del self.done[next(iter(self.done))]

    def may_try(self, slot: int) -> bool:
        """Whether this is the first try in a slot, or long after the last one."""
        now = time.monotonic()
        if slot == self._tried and now < self._retry:
            return False
        self._tried, self._retry = slot, now + RETRY_SECONDS
        return True


def _success(check: ScheduledCheck) -> float | None:
    """When a check with a result ended. A check that only lacks a reference value also has a
    result: it has compared the nodes.
    """
    compared = (check.outcome, check.reason) == ("unknown", "threshold")
    return check.ended if check.outcome in ("ok", "bad") or compared else None
