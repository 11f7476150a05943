"""Downtime of a link, from what looks saw."""

from __future__ import annotations

import pytest

from nodevitals.probes.common.downtime import WINDOW_SECONDS, Downtime, Downtimes, Sight
from nodevitals.wire import decode, encode

Look = tuple[float, Sight] | tuple[float, Sight, int | None]


def after(*looks: Look, start: Downtime | None = None) -> Downtime:
    one = start or Downtime()
    for look in looks:
        one.look(*look)
    return one


def test_outage_is_counted_from_the_first_look_down_to_the_first_look_up() -> None:
    one = after((10, "up"), (11, "down"), (12, "down"), (13, "down"), (14, "up"), (15, "up"))
    assert one.seconds == 3
    assert one.longest_seconds(15) == 3


def test_outage_that_goes_on_is_the_longest() -> None:
    one = after((1, "up"), (2, "down"), (3, "up"), (4, "down"), (5, "down"), (6, "down"))
    assert one.seconds == 3
    assert one.longest_seconds(6) == 2


def test_link_that_never_was_up_is_not_down() -> None:
    """After a boot, and after the driver was loaded: its ports train."""
    assert after((1, "down"), (2, "down"), (3, "up")).seconds == 0
    assert after((1, "up"), (2, "away"), (3, "down"), (5, "down"), (6, "up")).seconds == 0


def test_link_that_is_switched_off_is_not_down() -> None:
    one = after((1, "up"), (2, "down"), (3, "down"), (4, "away"), (5, "away"), (6, "up"))
    assert one.seconds == 1
    assert one.longest_seconds(6) == 1


def test_pause_of_the_looks_is_not_downtime() -> None:
    """The link may have come up soon after the last look."""
    assert after((1, "up"), (2, "down"), (60, "up")).seconds == 0
    assert after((1, "up"), (60, "down"), (61, "up")).seconds == 1
    assert after((1, "up"), (2, "down"), (60, "down"), (61, "up")).seconds == 1


def test_pause_is_downtime_where_the_driver_counted_no_further_loss_of_the_link() -> None:
    one = after((1, "up"), (2, "down", 5), (60, "down", 5), (61, "up"))
    assert one.seconds == 59
    assert one.longest_seconds(61) == 59
    one = after((1, "up"), (2, "down", 5), (3, "down", 5), (60, "down", 6), (62, "up"))
    assert one.seconds == 3
    assert one.longest_seconds(62) == 2


def test_count_that_the_driver_raises_late_does_not_end_the_outage() -> None:
    one = after((1, "up"), (2, "down", 5), (3, "down", 6), (60, "down", 6), (61, "up"))
    assert one.longest_seconds(61) == 59


def test_unreadable_look_is_a_pause() -> None:
    one = after((1, "up"), (2, "down", 5), (3, "unknown"), (9, "down", 5), (10, "up"))
    assert one.seconds == 8
    assert after((1, "unknown"), (2, "down"), (3, "up")).seconds == 0


def test_time_that_goes_back_counts_nothing() -> None:
    assert after((100, "up"), (101, "down", 5), (50, "down", 5), (51, "up")).seconds == 1


def test_long_outage_is_reported_for_the_window_however_many_follow() -> None:
    one = after((0, "up"), (1, "down", 1), (31, "down", 1), (32, "up"))
    for number in range(100):
        at = 100.0 + number * 10
        after((at, "down"), (at + 2, "up"), start=one)
    assert one.longest_seconds(1100) == 31
    assert one.longest_seconds(32 + WINDOW_SECONDS + 1) == 2
    assert len(one.outages) <= 16
    assert one.seconds == 231


def test_state_outlives_the_agent_but_not_the_boot() -> None:
    one = after((1, "up"), (2, "down", 5), (3, "down", 5))
    state = decode(encode(Downtimes("boot-1", {"mlx5_0/1": one})), Downtimes)
    kept = state.of_boot("boot-1").links["mlx5_0/1"]
    assert after((33, "down", 5), (34, "up"), start=kept).longest_seconds(34) == 32
    assert state.of_boot("boot-2").links == {}
    assert Downtimes("", {"mlx5_0/1": one}).of_boot("").links == {}


@pytest.mark.parametrize("sight", ["up", "away"])
def test_length_of_an_outage_that_ends_is_returned_once(sight: Sight) -> None:
    one = after((1, "up"), (2, "down"), (3, "down"))
    assert one.look(3.5, sight) == (1.5 if sight == "up" else 1)
    assert one.look(4, sight) == 0
