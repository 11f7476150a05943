"""Limits how much a node tests: seconds and bytes in any hour."""

from __future__ import annotations

from typing import Annotated

import msgspec

HOUR = 3600.0


class BudgetSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Limits for any hour. A test is charged to both of its nodes."""

    seconds_per_hour: Annotated[float, msgspec.Meta(gt=0, le=3600)] = 60.0
    """Time for which test tools may run on this node."""
    bytes_per_hour: Annotated[int, msgspec.Meta(ge=1, le=10**15)] = 100_000_000_000
    """Number of bytes that tests may move on this node."""


class Spent(msgspec.Struct, array_like=True, frozen=True):
    """The cost of one test: its start (seconds since the epoch), its duration, its bytes."""

    time: float
    seconds: float
    bytes: float


class Meter:
    """The cost of the tests in the last hour. A clock that was set back frees nothing."""

    def __init__(self, settings: BudgetSettings, spent: tuple[Spent, ...] = ()) -> None:
        self.settings = settings
        self._spent = list(spent)

    def allows(self, now: float, seconds: float, size: float) -> bool:
        """Whether one more test fits, at its highest cost."""
        self._spent = [one for one in self._spent if now - one.time < HOUR]
        total_seconds = sum(one.seconds for one in self._spent) + seconds
        total_bytes = sum(one.bytes for one in self._spent) + size
        return (
            total_seconds <= self.settings.seconds_per_hour
            and total_bytes <= self.settings.bytes_per_hour
        )

    def charge(self, now: float, seconds: float, size: float) -> None:
        """Charge a test that has ended, whatever its outcome."""
        self._spent.append(Spent(now, seconds, size))

    def spent(self) -> tuple[Spent, ...]:
        """What must be kept over a restart."""
        return tuple(self._spent)
