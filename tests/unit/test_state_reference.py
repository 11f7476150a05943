"""The time against which ages are measured: it follows the wall clock, but cannot jump."""

from __future__ import annotations

from nodevitals.state.reference import DAY, Reference, advance, limits

NOW = 1_760_000_000.0
MAX_AGE = 90 * DAY


def after(seconds: float, wall: float, boot_id: str = "boot") -> Reference:
    """Return the reference some time after it was right."""
    return advance(Reference("boot", 1000.0, NOW), boot_id, 1000.0 + seconds, wall)


def test_it_follows_a_right_clock() -> None:
    assert after(3600.0, NOW + 3600.0).time == NOW + 3600.0


def test_it_starts_at_the_wall_clock() -> None:
    assert advance(None, "boot", 5.0, NOW) == Reference("boot", 5.0, NOW)


def test_a_clock_that_is_ahead_moves_it_by_twice_the_time_that_passed() -> None:
    assert after(3 * DAY, NOW + 400 * DAY).time == NOW + 6 * DAY


def test_a_clock_that_is_behind_moves_it_as_slowly() -> None:
    assert after(10.0, NOW - 200 * DAY).time == NOW - 20.0


def test_a_clock_at_1970_does_not_move_it() -> None:
    assert after(3600.0, 12.0).time == NOW


def test_after_a_reboot_the_time_since_boot_is_what_has_passed() -> None:
    left_off = advance(Reference("boot", 9e6, NOW), "other", 60.0, NOW + 400 * DAY)
    assert left_off.time == NOW + 120.0


def test_rows_within_the_age_by_either_clock_are_kept() -> None:
    ahead, behind = NOW + 400 * DAY, NOW - 400 * DAY
    for wall in (NOW, ahead, behind, 12.0):
        oldest, newest = limits(Reference("boot", 1.0, NOW), wall, MAX_AGE)
        assert oldest <= NOW - MAX_AGE
        assert newest >= NOW
