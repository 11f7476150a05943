"""What a schedule has done: its checks, the slots that have one, and why the last start failed.

In: checks as they change, slots. Out: what the next decision needs. Bounded.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterable
from typing import NamedTuple

import msgspec

from nodevitals.checks.model import Check
from nodevitals_hub.settings import schedule_times as plan
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
    """What is kept over restarts, as checks are removed some day. Times are seconds since the
    epoch.
    """

    every: float
    since: float
    last_success: float | None = None


_encode = msgspec.json.Encoder().encode
_kept = msgspec.json.Decoder(Kept).decode


class Book:
    """What a schedule has done."""

    def __init__(self) -> None:
        self.every: float | None = None
        """Its interval; None while the settings do not have it."""
        self.since = 0.0
        """When the settings got it with this interval."""
        self.done: dict[int, None] = {}
        """Slots in which it started a check, in the order of the starts."""
        self.reason = ""
        self.last: ScheduledCheck | None = None
        self.last_success: float | None = None
        self.checks: dict[str, ScheduledCheck] = {}
        self._tried: int | None = None
        self._retry = 0.0

    def begin(self, record: bytes | None, before: Iterable[Check], now: float) -> None:
        """Begin with what was kept, and with the checks that are stored. What is of the future was
        written under a clock that was wrong.
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
        past = [one for one in ended if one is not None and one <= now]
        self.last_success = max(past, default=None)

    def set_interval(self, every: float | None, now: float) -> None:
        """The interval of the settings, or None. Another one starts a new count."""
        if every != self.every:
            self.every, self.since = every, now
        # The clock was set back: without this the schedule would be late unnoticed for as long.
        self.since = min(self.since, now)
        if self.last_success is not None:
            self.last_success = min(self.last_success, now)

    def record(self) -> bytes | None:
        """What to keep; None where the settings do not have the schedule."""
        if self.every is None:
            return None
        kept = Kept(every=self.every, since=self.since, last_success=self.last_success)
        return _encode(kept)

    def take(self, check: Check) -> None:
        """Remember a check or its change."""
        found = plan.scheduled(check)
        if check.id not in self.checks or (self.last is not None and self.last.id == check.id):
            self.last = found
        self.checks[check.id] = found
        if _success(found) is not None:
            self.last_success = found.ended

    def forget(self, now: float) -> None:
        """Forget what no budget counts."""
        old = [
            one.id
            for one in self.checks.values()
            if one is not self.last and abs(now - one.created) >= plan.BUDGET_SECONDS
        ]
        for identity in old:
            del self.checks[identity]

    def settle(self, slot: int) -> None:
        """A slot has its check."""
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


def _success(found: ScheduledCheck) -> float | None:
    """When a check with a result ended. One that lacks a reference alone has compared the nodes."""
    compared = (found.outcome, found.reason) == ("unknown", "threshold")
    return found.ended if found.outcome in ("ok", "bad") or compared else None
