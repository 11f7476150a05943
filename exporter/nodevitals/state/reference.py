"""The time against which the age of rows is measured: a wall clock that cannot jump.

A clock may be wrong for minutes or days: before it is synchronized, by a bad time server, with an
empty battery. Rows that were removed meanwhile would not return when it is corrected. So the
reference follows the wall clock, but at most at twice the speed of the clock that counts since
boot, and does not move at all while the wall clock is before this program.
"""

from __future__ import annotations

import msgspec

SPEED = 2.0
# 2025-01-01; nodevitals is younger.
EARLIEST_TIME = 1_735_689_600.0
DAY = 86_400.0


class Reference(msgspec.Struct, array_like=True, frozen=True):
    """A time, and when it was set: `since_boot` seconds after the start of the boot."""

    boot_id: str
    since_boot: float
    time: float


def advance(last: Reference | None, boot_id: str, since_boot: float, wall: float) -> Reference:
    """The reference now. It is the wall clock where there is no last one."""
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
