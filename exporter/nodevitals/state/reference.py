"""The time for measuring the age of rows: a wall clock that cannot jump.

A clock may be wrong for minutes or days: before it is synchronized, by a bad time server, or with
an empty battery. Rows that were removed meanwhile would be lost. So the reference follows the wall
clock at no more than twice the speed of the clock since boot, and stands still while the wall clock
shows a time before this program existed.
"""

from __future__ import annotations

import msgspec

SPEED = 2.0
# 2025-01-01: nodevitals did not exist before.
EARLIEST_TIME = 1_735_689_600.0
DAY = 86_400.0


class Reference(msgspec.Struct, array_like=True, frozen=True):
    """A time, and when it was set: `since_boot` seconds after the start of the boot."""

    boot_id: str
    since_boot: float
    time: float


def advance(last: Reference | None, boot_id: str, since_boot: float, wall: float) -> Reference:
    """The reference now: the wall clock where there is no last reference."""
    if last is None:
        return Reference(boot_id, since_boot, wall)
    same_boot = last.boot_id == boot_id and since_boot >= last.since_boot
    step = SPEED * (since_boot - last.since_boot if same_boot else since_boot)
    if wall < EARLIEST_TIME:
        wall = last.time
    return Reference(boot_id, since_boot, min(max(wall, last.time - step), last.time + step))


def limits(reference: Reference, wall: float, max_age: float) -> tuple[float, float]:
    """The times between which a row is neither too old nor from the future."""
    oldest = min(wall, reference.time) - max_age
    return oldest, max(wall, reference.time) + DAY
