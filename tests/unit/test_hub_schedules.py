"""When schedules start checks, and why they do not."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from nodevitals.checks.model import Check, CheckRequest, Cost, Requester, TestRequest, Verdict
from nodevitals_hub.checks.check_requests import Member
from nodevitals_hub.checks.planning import resolve
from nodevitals_hub.settings import schedule_times as plan
from nodevitals_hub.settings.hub import HubSettings, ScheduleSettings
from nodevitals_hub.settings.schedule_times import Timing, Window, parse_window
from nodevitals_hub.triggers.schedule_book import Book

DAY, HOUR = 86400.0, 3600.0
NODES = tuple(f"gpu-{number}" for number in range(1, 7))
MATRIX = CheckRequest(kind="matrix", where={"pool": "train"}, note="nightly")


def check(
    created: float, hours: float = 1.0, seconds: float = 60.0, took: float | None = None
) -> Check:
    """Return a check of two nodes that may take so many node hours; ended where it took some."""
    return Check(
        id="20260101-000000-abcdef",
        request=MATRIX,
        requester=Requester(trigger="schedule", name="nightly"),
        cost=Cost(nodes=2, runs=1, node_seconds=hours * HOUR, seconds=seconds, bytes=1),
        created=created,
        phase="running" if took is None else "done",
        started=created,
        ended=None if took is None else created + took,
        verdict=None if took is None else Verdict(outcome="ok", message="good"),
    )


def _member(name: str) -> Member:
    return Member(name=name, host=name, port=9856, labels={"pool": "train"})


@pytest.mark.parametrize(
    ("text", "hour", "rest", "opening"),
    [
        ("", 3, float("inf"), 3),
        ("01:00-05:00", 1, 4, 1),
        ("01:00-05:00", 4.5, 0.5, 4.5),
        ("01:00-05:00", 5, 0, 25),
        ("01:00-05:00", 0, 0, 1),
        ("22:00-02:00", 23, 3, 23),
        ("22:00-02:00", 25, 1, 25),
        ("22:00-02:00", 12, 0, 22),
    ],
)
def test_window(text: str, hour: float, rest: float, opening: float) -> None:
    window, midnight = parse_window(text), 20_000 * DAY
    assert window.rest(midnight + hour * HOUR) == rest * HOUR
    assert window.opening(midnight + hour * HOUR) == midnight + opening * HOUR


@pytest.mark.parametrize(
    "text", ["1:00-5:00", "01:00", "01:00-01:00", "24:00-01:00", "01:60-02:00"]
)
def test_window_that_is_none(text: str) -> None:
    with pytest.raises(ValueError, match="write it like 01:00-05:00"):
        parse_window(text)


def test_one_start_per_night_also_over_midnight() -> None:
    timing = Timing(DAY, parse_window("22:00-05:00"))
    done: dict[int, None] = {}
    starts = []
    for quarter in range(4 * 24 * 3):
        now = 20_000 * DAY + quarter * 900
        slot = timing.due(now, done)
        if slot is not None:
            starts.append((now - 20_000 * DAY) / HOUR)
            done[slot] = None
    # The hub had this schedule since midnight, within the window of the night before.
    assert starts == [0, 22, 46, 70]


WINDOWS = st.one_of(
    st.just(Window()),
    st.builds(Window, st.integers(0, 86399).map(float), st.integers(60, 86399).map(float)),
)
CLOCKS = st.lists(st.integers(0, 10**6).map(lambda one: 20_000 * DAY + one), min_size=1)


@given(st.integers(1, 3 * 86400).map(float), WINDOWS, CLOCKS)
def test_whatever_the_clock_does(every: float, window: Window, clock: list[float]) -> None:
    timing = Timing(every, window)
    done: dict[int, None] = {}
    for now in clock:
        announced = timing.next_start(now, done)
        slot = timing.due(now, done)
        # Neither blocked by a jump, nor started twice, nor outside the window.
        assert (slot is not None) == (window.rest(now) > 0 and timing.slot(now) not in done)
        assert announced >= now
        assert timing.due(announced, done) is not None
        assert (announced == now) == (slot is not None)
        if slot is not None:
            done[slot] = None


@given(st.integers(60, 3 * 86400).map(float), WINDOWS)
def test_the_longest_time_between_two_starts(every: float, window: Window) -> None:
    """Where nothing stands against a start."""
    timing = Timing(every, window)
    done: dict[int, None] = {}
    now = 20_000 * DAY
    starts: list[float] = []
    while len(starts) < 20:
        now = timing.next_start(now, done)
        slot = timing.due(now, done)
        assert slot is not None
        done[slot] = None
        starts.append(now)
    gaps = [after - before for before, after in pairwise(starts)]
    assert max(gaps) <= timing.longest
    assert timing.longest == every or window != Window()


def book_of(*checks: Check, record: bytes | None = None, now: float = 1e6) -> Book:
    """The book that a hub begins with."""
    book = Book()
    book.begin(record, checks, now)
    book.set_interval(DAY, now)
    return book


def test_a_restart_starts_no_new_count() -> None:
    first = book_of(check(1e6, took=60))
    assert (first.since, first.last_success) == (1e6, None)  # it ended in the future
    first.take(check(1e6, took=60))
    later = book_of(record=first.record(), now=1e6 + DAY)
    assert (later.since, later.last_success) == (1e6, 1e6 + 60)
    # Killed between the end of a check and the next tick.
    newest = book_of(check(1e6 + HOUR, took=60), record=first.record(), now=1e6 + DAY)
    assert newest.last_success == 1e6 + HOUR + 60
    assert book_of(record=b"nonsense", now=1e6 + DAY).since == 1e6 + DAY


def test_another_interval_or_a_schedule_that_comes_back_starts_a_new_count() -> None:
    book = book_of()
    book.set_interval(DAY, 2e6)
    assert book.since == 1e6
    book.set_interval(HOUR, 2e6)
    assert book.since == 2e6
    book.set_interval(None, 3e6)
    assert book.record() is None
    book.set_interval(HOUR, 4e6)
    assert book.since == 4e6


def test_a_clock_that_was_ahead_does_not_hide_a_stale_schedule() -> None:
    book = book_of()
    book.take(check(2e6, took=60))
    book.set_interval(DAY, 1.5e6)
    assert book.last_success == 1.5e6
    book.set_interval(DAY, 1.6e6)
    assert (book.since, book.last_success) == (1e6, 1.5e6)
    book.set_interval(DAY, 0.5e6)
    assert (book.since, book.last_success) == (0.5e6, 0.5e6)
    record = book.record()
    assert book_of(check(2e6, took=60), record=record).last_success == 0.5e6


def test_a_check_that_lacks_a_reference_alone_has_a_result() -> None:
    """It has compared the nodes with each other; one that failed has not."""
    for reason, success in (("threshold", 1e6 + 60), ("harness", None), ("workload", None)):
        book = book_of()
        found = Verdict(outcome="unknown", reason=reason)  # type: ignore[arg-type]
        book.take(replace(check(1e6, took=60), verdict=found))
        assert book.last_success == success


def test_budget_counts_what_was_taken_within_seven_days() -> None:
    now = 20_000 * DAY
    ended = plan.scheduled(check(now - HOUR, took=900))
    assert (ended.node_seconds, ended.outcome, ended.message) == (1800, "ok", "good")
    running = plan.scheduled(check(now - 60))
    old = plan.scheduled(check(now - 7 * DAY, took=900))
    ahead = plan.scheduled(check(now + 60))
    assert plan.spent([ended, running, old, ahead], now) == 0.5 + 1 + 1
    assert plan.scheduled(check(now, took=-60)).node_seconds == 0
    assert plan.scheduled(check(now, took=DAY)).node_seconds == HOUR


def test_limits_of_a_schedule() -> None:
    at_four = 20_000 * DAY + 4 * HOUR
    schedule = ScheduleSettings(check=MATRIX, window="01:00-05:00", node_hours=2)
    before = [plan.scheduled(check(at_four - DAY))]

    def refusal(hours: float, seconds: float) -> str:
        return plan.over_limits(schedule, check(at_four, hours, seconds), before, at_four)

    assert refusal(1, 3600) == ""
    assert refusal(1, 3601) == (
        "takes up to 3601 s, more than is left of the window 01:00-05:00 UTC"
    )
    assert refusal(1.1, 60) == (
        "1 of 2 node hours are spent within 7 days, and it takes up to 1.1 (node_hours)"
    )
    free = ScheduleSettings(check=MATRIX)
    assert plan.over_limits(free, check(at_four, 1e6, 1e6), before, at_four) == ""


def test_nodes_in_use_are_left_out_and_named() -> None:
    request = plan.noted(MATRIX, ["gpu-2"])
    assert request.where == MATRIX.where
    assert request.note == "nightly; left out, in use: gpu-2"
    members = {name: _member(name) for name in NODES}
    named = msgspec.structs.replace(MATRIX, nodes=NODES[:2], where={})
    for one, left in ((MATRIX, ("gpu-1", *NODES[2:])), (named, ("gpu-1",))):
        wanted = msgspec.structs.replace(one, kind="node")
        resolved = resolve(wanted, members, HubSettings(), ["gpu-2"])
        assert (resolved.nodes, resolved.where) == (left, one.where)
    assert plan.noted(MATRIX, []) is MATRIX
    many = [f"gpu-{number}" for number in range(200)]
    long = plan.noted(MATRIX, many).note
    assert len(long) == 500
    assert long.endswith("…")
    msgspec.convert({"kind": "node", "note": long}, CheckRequest)


@pytest.mark.parametrize(
    ("kind", "nodes", "in_use", "expected", "enough"),
    [
        ("matrix", 6, 2, None, True),
        ("matrix", 6, 3, None, False),
        ("matrix", 6, 3, 1e9, True),
        ("matrix", 3, 0, None, True),
        ("matrix", 3, 1, None, False),
        ("pair", 2, 1, None, False),
        ("collective", 6, 4, None, True),
        ("collective", 6, 5, None, False),
        ("collective", 1, 0, None, True),
    ],
)
def test_too_few(kind: Any, nodes: int, in_use: int, expected: float | None, enough: bool) -> None:
    request = CheckRequest(kind=kind, nodes=NODES[:nodes], expected_bytes_per_second=expected)
    assert (plan.too_few(request, NODES[:in_use]) == "") == enough


def test_reason_names_the_nodes() -> None:
    request = CheckRequest(kind="matrix", nodes=NODES)
    assert plan.too_few(request, NODES) == (
        "0 of 6 nodes are idle, a matrix needs 4; in use: gpu-1, gpu-2, gpu-3, gpu-4, gpu-5 and"
        " 1 more"
    )


def test_problems_of_the_settings() -> None:
    good = CheckRequest(
        kind="matrix", where={"pool": "a"}, preset="tcp", test=TestRequest(device="e")
    )
    preset = CheckRequest(kind="matrix", where={"pool": "a"}, preset="nope")
    forced = CheckRequest(kind="matrix", force=True, test=TestRequest())
    schedules = {
        "good": ScheduleSettings(check=good, window="22:00-02:00", node_hours=1),
        "Night": ScheduleSettings(check=good, window="late", every=0.5),
        "preset": ScheduleSettings(check=preset),
        "forced": ScheduleSettings(check=forced),
    }
    fine = HubSettings(schedules={"good": schedules["good"]})
    assert list(fine.problems()) == []
    short = msgspec.structs.replace(fine.limits, keep=DAY)
    found = HubSettings(schedules=schedules, limits=short).problems()
    assert [problem.path for problem in found] == [
        "limits.keep",
        "schedules.Night",
        "schedules.Night.every",
        "schedules.Night.window",
        "schedules.preset.check",
        "schedules.forced.check.force",
        "schedules.forced.check",
        "schedules.forced.check.test.device",
    ]
