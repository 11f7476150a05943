"""How much a node may test: so many seconds and bytes in any hour."""

from __future__ import annotations

from typing import Annotated

import msgspec

HOUR = 3600.0


class BudgetSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """For both sides of a test: who is tested spends as much as who tests."""

    seconds_per_hour: Annotated[float, msgspec.Meta(gt=0, le=3600)] = 60.0
    bytes_per_hour: Annotated[int, msgspec.Meta(gt=0)] = 100_000_000_000


class Spent(msgspec.Struct, array_like=True, frozen=True):
    """One test: when it began (seconds since the epoch), how long it took, what it moved."""

    time: float
    seconds: float
    bytes: float


class Meter:
    """What was spent in the hour before now. A clock that was set back frees nothing."""

    def __init__(self, settings: BudgetSettings, spent: tuple[Spent, ...] = ()) -> None:
        self.settings = settings
        self._spent = list(spent)

    def allows(self, now: float, seconds: float, size: float) -> bool:
        """Whether one more test fits, at its most."""
        self._spent = [one for one in self._spent if now - one.time < HOUR]
        total_seconds = sum(one.seconds for one in self._spent) + seconds
        total_bytes = sum(one.bytes for one in self._spent) + size
        return (
            total_seconds <= self.settings.seconds_per_hour
            and total_bytes <= self.settings.bytes_per_hour
        )

    def charge(self, now: float, seconds: float, size: float) -> None:
        """A test has ended, well or not."""
        self._spent.append(Spent(now, seconds, size))

    def spent(self) -> tuple[Spent, ...]:
        """What is to be remembered over a restart."""
        return tuple(self._spent)
