"""A target's schedule and phases, with given times."""

from __future__ import annotations

import itertools
import signal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nodevitals.engine.lifecycle import (
    FIRST_RUN_SECONDS,
    GRACE_SECONDS,
    REAP_SECONDS,
    Command,
    Lifecycle,
    Phase,
)
from nodevitals.linux.host import stable_fraction
from nodevitals.probe import Timing

TIMING = Timing(interval_seconds=15.0, timeout_seconds=10.0, stale_after_seconds=45.0)


def started(spread: float = 0.0, timing: Timing = TIMING) -> Lifecycle:
    """Return a lifecycle whose first run started at 0."""
    life = Lifecycle(timing, spread, 0.0)
    assert life.command(life.wake) is Command.START
    return life


@settings(deadline=None)
@given(st.floats(0, 1, exclude_max=True), st.floats(0.5, 3600))
def test_first_run_starts_within_a_second(spread: float, interval: float) -> None:
    timing = Timing(interval_seconds=interval, timeout_seconds=0.5, stale_after_seconds=1)
    assert 0 <= Lifecycle(timing, spread, 0.0).wake <= FIRST_RUN_SECONDS < 1


@settings(deadline=None)
@given(st.floats(0, 1, exclude_max=True))
def test_later_runs_keep_their_offset_in_the_interval(spread: float) -> None:
    """However late a run ends, the next starts at origin + k * interval; no interval has two."""
    life = started(spread)
    starts = []
    for duration in (0.1, 3.0, 9.9, 0.1):
        life.answered(life.began + duration, stays=False)
        life.exited(life.began + duration)
        starts.append(life.wake)
        assert life.command(life.wake) is Command.START
    assert all(
        abs((start - spread * 15.0) % 15.0 - 0) < 1e-6
        or abs((start - spread * 15.0) % 15.0 - 15) < 1e-6
        for start in starts
    )
    assert all(after - before > 14.9 for before, after in itertools.pairwise(starts))


def test_process_is_stuck_only_when_sigkill_was_delivered() -> None:
    """A fork server without CPU time has sent nothing yet."""
    life = started()
    assert life.command(life.wake, 0) is Command.TERM
    assert life.command(life.wake, 0) is Command.KILL
    for _ in range(5):
        before = life.wake
        assert life.command(before, signal.SIGTERM) is None
        assert life.phase is Phase.KILLED
        assert life.wake == before + REAP_SECONDS
    assert life.command(life.wake, signal.SIGKILL) is Command.ABANDON


def test_garbage_of_a_process_that_is_being_ended_changes_nothing() -> None:
    life = started()
    for command, phase in ((Command.TERM, Phase.TERMINATING), (Command.KILL, Phase.KILLED)):
        assert life.command(life.wake) is command
        life.broke(life.began + 11)
        assert life.phase is phase
    assert life.command(life.wake) is Command.ABANDON
    life.broke(life.began + 20)
    assert life.phase is Phase.STUCK


def test_missed_runs_are_skipped() -> None:
    life = started()
    life.answered(1000.5, stays=False)
    life.exited(1000.5)
    assert life.wake == 1005.0


def test_overdue_process_gets_term_then_kill_and_is_then_stuck() -> None:
    life = started()
    assert life.command(9.9) is None
    assert life.overdue(9.9) == 0.0
    assert life.command(10.0) is Command.TERM
    assert life.overdue(11.0) == 11.0
    assert life.command(10.0 + GRACE_SECONDS) is Command.KILL
    assert life.command(10.0 + GRACE_SECONDS + REAP_SECONDS) is Command.ABANDON
    assert life.phase is Phase.STUCK
    assert life.command(1e6) is None
    assert life.overdue(5000.0) == 5000.0
    assert life.exited(5000.0)
    assert life.overdue(5001.0) == 0.0
    assert life.command(life.wake) is Command.START


def test_process_that_lingers_after_its_result_is_ended_but_not_overdue() -> None:
    life = started()
    life.answered(1.0, stays=False)
    assert life.command(1.0 + GRACE_SECONDS) is Command.TERM
    assert life.overdue(5.0) == 0.0
    assert life.exited(5.0) is False


def test_resident_runs_again_in_the_same_process() -> None:
    life = started()
    life.answered(0.1, stays=True)
    assert life.command(life.wake) is Command.RUN
    assert life.began == 15.0


def test_resident_that_exits_between_runs_has_failed() -> None:
    life = started()
    life.answered(0.1, stays=True)
    assert life.exited(3.0) is True
    assert life.wake == 15.0


def test_failed_worker_is_restarted_at_the_next_interval_then_with_back_off() -> None:
    fast = Timing(interval_seconds=1.0, timeout_seconds=1.0, stale_after_seconds=3.0)
    life = started(timing=fast)
    waits = []
    for _ in range(8):
        began = life.began
        life.exited(began + 0.01)
        waits.append(round(life.wake - began))
        assert life.command(life.wake) is Command.START
    assert waits == [1, 2, 4, 8, 16, 30, 30, 30]


def test_worker_lost_with_its_fork_server_is_restarted_at_once_but_only_once() -> None:
    life = started()
    life.exited(3.0, again=True)
    assert life.command(3.0) is Command.START
    life.exited(4.0, again=True)
    assert life.wake > 4.0


def test_back_off_does_not_exceed_a_long_interval() -> None:
    slow = Timing(interval_seconds=60.0, timeout_seconds=30.0, stale_after_seconds=180.0)
    life = started(timing=slow)
    for _ in range(4):
        began = life.began
        life.exited(began + 0.01)
        assert round(life.wake - began) == 60
        life.command(life.wake)


def test_retired_target_ends_its_process_and_starts_no_other() -> None:
    life = started()
    life.retire(1.0)
    assert life.command(1.0) is Command.TERM
    assert life.overdue(2.0) == 0.0
    life.exited(2.0)
    assert life.gone
    assert life.command(1e9) is None


def test_changed_settings_take_effect_soon_and_in_a_new_process() -> None:
    life = started()
    life.answered(0.1, stays=True)
    fast = Timing(interval_seconds=1.0, timeout_seconds=1.0, stale_after_seconds=3.0)
    life.change(fast, 2.0)
    assert life.command(2.0) is Command.TERM
    assert life.exited(2.1) is False
    assert life.command(3.5) is Command.START
    life.answered(3.6, stays=True)
    assert life.command(life.wake) is Command.RUN
    assert life.began <= 4.6


@pytest.mark.parametrize("moment", ["before its result", "before it is reaped", "afterwards"])
def test_changed_settings_of_a_run_in_flight_take_effect_soon(moment: str) -> None:
    """Each place in the interval would be up to an hour away."""
    hourly = Timing(interval_seconds=3600.0, timeout_seconds=10.0, stale_after_seconds=9000.0)
    life = started(0.5, hourly)
    if moment == "before its result":
        life.change(hourly, 1.0)
    life.answered(2.0, stays=False)
    if moment == "before it is reaped":
        life.change(hourly, 2.5)
    life.exited(3.0)
    if moment == "afterwards":
        life.change(hourly, 3.0)
    assert life.wake <= 3.0 + FIRST_RUN_SECONDS
    assert life.command(life.wake) is Command.START
    life.answered(5.0, stays=False)
    life.exited(5.1)
    assert life.wake > 600


def test_changed_settings_do_not_reset_an_overdue_run() -> None:
    life = started()
    assert life.command(10.0) is Command.TERM
    life.change(TIMING, 11.0)
    assert life.overdue(12.0) == 12.0
    assert life.command(12.0) is Command.KILL


def test_invalid_message_ends_the_process_at_once() -> None:
    life = started()
    life.broke(0.5)
    assert life.command(0.5) is Command.TERM
    assert life.exited(0.6)


@settings(deadline=None)
@given(st.lists(st.text(), min_size=1, max_size=4))
def test_stable_fraction_is_stable_and_in_range(words: list[str]) -> None:
    assert 0 <= stable_fraction(*words) < 1
    assert stable_fraction(*words) == stable_fraction(*words)


def test_stable_fraction_spreads_nodes_over_the_interval() -> None:
    fractions = [stable_fraction(f"node-{n}", "mounts", "/data") for n in range(1000)]
    tenths = [sum(n / 10 <= fraction < (n + 1) / 10 for fraction in fractions) for n in range(10)]
    assert min(tenths) > 60


def test_first_run_of_a_process_has_extra_time() -> None:
    life = Lifecycle(TIMING, 0.0, 0.0, start_seconds=30.0)
    began = life.wake
    assert life.command(began) is Command.START
    assert life.command(began + 39.9) is None
    life.answered(began + 39.9, stays=True)
    began = life.wake
    assert life.command(began) is Command.RUN
    assert life.command(began + 9.9) is None
    assert life.command(began + 10) is Command.TERM
    assert life.allowed_seconds == 10
