"""Limits how long tools run on this node in any 24 hours."""

from __future__ import annotations

import msgspec

from nodevitals.probes.selfcheck.settings import DAY


class Spent(msgspec.Struct, array_like=True, frozen=True):
    """The cost of one check: its start (seconds since the epoch) and its duration."""

    time: float
    seconds: float


class Meter:
    """The cost of the checks of the last day. A clock that was set back frees nothing."""

    def __init__(self, seconds_per_day: float, spent: tuple[Spent, ...] = ()) -> None:
        self._limit = seconds_per_day
        self._spent = list(spent)

    def allows(self, now: float, seconds: float) -> bool:
        """Whether one more check fits, at its highest cost."""
        self._spent = [one for one in self._spent if now - one.time < DAY]
        return sum(one.seconds for one in self._spent) + seconds <= self._limit

    def charge(self, now: float, seconds: float) -> None:
        """Charge a check that has ended, whatever its outcome."""
        self._spent.append(Spent(now, seconds))

    def spent(self) -> tuple[Spent, ...]:
        """What must be kept over a restart."""
        return tuple(self._spent)
