"""What a schedule has done: its checks, the slots that have one, and why the last start failed.

In: checks as they change, slots. Out: what the next decision needs. Bounded.
"""

from __future__ import annotations

import time
from typing import Optional

from nodevitals.checks.model import Check
from nodevitals.hub import schedule_plan as plan
from nodevitals.hub.schedule_plan import ScheduledCheck

RETRY_SECONDS = 60.0
MAX_SLOTS = 10_000


class Book:
    """What a schedule has done."""

    def __init__(self) -> None:
        self.since = time.time()
        self.done: dict[int, None] = {}
        """Slots in which it started a check, in the order of the starts."""
        self.reason = ""
        self.last: Optional[ScheduledCheck] = None
        self.last_success: Optional[float] = None
        self.checks: dict[str, ScheduledCheck] = {}
        self._tried: Optional[int] = None
        self._retry = 0.0

    def take(self, check: Check) -> None:
        """Remember a check or its change."""
        found = plan.scheduled(check)
        if check.id not in self.checks or (self.last is not None and self.last.id == check.id):
            self.last = found
        self.checks[check.id] = found
        if found.outcome in ("ok", "bad"):
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
