"""Which targets start when they are due, and which wait for a process that they may share."""

from __future__ import annotations

import math

import pytest

from nodevitals import catalogue
from nodevitals.engine.protocol import TargetSpec
from nodevitals.engine.schedule import SHARED_PATIENCE_SECONDS, Schedule
from nodevitals.engine.target import MAX_MESSAGES, StateInput, Target
from nodevitals.probe import Timing
from nodevitals.state.journal import Journal
from nodevitals.wire import ProbeResult

BUSY_UNTIL = 7.0


class Processes:
    """The room for processes: always some; the shared process is busy or free."""

    def __init__(self) -> None:
        self.busy = True

    def room(self, now: float) -> float:
        return now

    def keeper_free(self, now: float) -> float:
        return max(now, BUSY_UNTIL) if self.busy else now

    def shared_free(self, now: float) -> float:
        return math.inf if self.busy else now


def target(name: str, shared: bool = True, resident: bool = False, prompt: bool = False) -> Target:
    """Return a target that is due at 0 s."""
    spec = TargetSpec(
        probe="mounts",
        target=name,
        settings=b"",
        timing=Timing(),
        resident=resident,
        persistent=False,
        start_seconds=0.0,
        required=False,
        shared=shared,
        prompt=prompt,
    )
    return Target(spec, StateInput(Journal(catalogue.all_families(), "boot"), spec), 0.0, 0.0)


def schedule(processes: Processes, *targets: Target) -> Schedule:
    made = Schedule(processes.room, processes.keeper_free, processes.shared_free)
    made.loading = False
    for one in targets:
        made.plan(one, 0.0)
    return made


def started(made: Schedule, now: float) -> list[str]:
    """The targets that start now, as the supervisor asks for them."""
    found = []
    for one in made.due(now):
        if not made.hold(one, now):
            found.append(one.spec.target)
            one.lifecycle.command(now)
        made.plan(one, now)
    return found


@pytest.fixture
def processes() -> Processes:
    return Processes()


def test_target_waits_a_moment_for_the_shared_process(processes: Processes) -> None:
    made = schedule(processes, target("one"))
    assert started(made, 0.0) == []
    assert made.wake(0.0) == SHARED_PATIENCE_SECONDS
    assert started(made, 0.05) == []
    assert started(made, SHARED_PATIENCE_SECONDS) == ["one"]
    assert made.wake(0.2) > 1.0


def test_target_starts_when_the_shared_process_is_free(processes: Processes) -> None:
    """The others wait on, as it is busy again, but no longer than from when they were due."""
    made = schedule(processes, target("one"), target("two"))
    assert started(made, 0.0) == []
    processes.busy = False
    for one in made.due(0.03):
        assert not made.hold(one, 0.03)
        one.lifecycle.command(0.03)
        processes.busy = True
    assert started(made, 0.06) == []
    assert len(started(made, SHARED_PATIENCE_SECONDS)) == 1


def test_target_that_shares_no_process_does_not_wait(processes: Processes) -> None:
    failed = target("failed")
    failed.last = ProbeResult(outcome="error")
    made = schedule(processes, target("own", shared=False), failed)
    assert sorted(started(made, 0.0)) == ["failed", "own"]


def test_probe_that_is_kept_open_waits_for_its_own_process(processes: Processes) -> None:
    made = schedule(processes, target("kept", resident=True))
    assert started(made, 0.0) == []
    assert made.wake(0.0) == BUSY_UNTIL
    assert started(made, SHARED_PATIENCE_SECONDS) == []
    assert started(made, BUSY_UNTIL) == ["kept"]


def test_target_that_is_late_already_does_not_wait(processes: Processes) -> None:
    """As after a suspension, or where the agent itself was late."""
    made = schedule(processes, target("one"))
    assert started(made, 20.0) == ["one"]


def test_messages_wait_for_the_next_run() -> None:
    one = target("one", prompt=True)
    one.deliver("nvidia", b"before")
    assert one.has_news
    assert one.messages() == (b"before",)
    assert not one.has_news
    one.deliver("nvidia", b"during")
    one.answered()
    assert one.has_news
    assert one.messages() == (b"during",)


def test_what_a_sender_repeats_is_no_news() -> None:
    """`nvidia` sends the names of its GPUs after each run; they wait for the receiver's next."""
    one = target("one", prompt=True)
    news = []
    for message in (b"names", b"names", b"an Xid", b"names", b"names"):
        one.deliver("nvidia", message)
        news.append(one.has_news)
        assert one.messages() == (message,)
        one.answered()
    assert news == [True, False, True, True, False]
    one.deliver("another", b"names")
    assert one.has_news
    usual = target("two")
    usual.deliver("nvidia", b"names")
    assert not usual.has_news


def test_sender_that_runs_often_displaces_no_message_of_another() -> None:
    """`profile` runs every two minutes, `nvidia` every second under a lease."""
    one = target("one")
    one.deliver("services", b"units")
    for number in range(60):
        one.deliver("nvidia", str(number).encode())
        if not number:
            one.deliver("node", b"first")
    kept = one.messages()
    assert (b"units" in kept, b"first" in kept, len(kept)) == (True, True, MAX_MESSAGES)
    assert kept[-1] == b"59"
    for number in range(60, 120):  # the run returned no result: its messages are given again
        one.deliver("nvidia", str(number).encode())
    kept = one.messages()
    assert (b"units" in kept, b"first" in kept, len(kept)) == (True, True, MAX_MESSAGES)
    assert kept[-1] == b"119"
