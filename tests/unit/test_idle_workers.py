"""Worker processes that wait between two targets: which one serves next, and which ones end."""

from __future__ import annotations

import os
import selectors
import socket
from collections.abc import Callable, Iterator
from contextlib import suppress

import pytest

from nodevitals.engine.channel import Worker
from nodevitals.engine.processes import IDLE_SECONDS, MAX_IDLE, IdleWorkers
from nodevitals.engine.worker import MAX_SHARED_KIBIBYTES, MAX_SHARED_RUNS, is_worn
from nodevitals.wire import ProbeResult, frame

New = Callable[[], Worker]


@pytest.fixture
def selector() -> Iterator[selectors.BaseSelector]:
    with selectors.DefaultSelector() as found:
        yield found


@pytest.fixture
def new(selector: selectors.BaseSelector) -> Iterator[New]:
    """Workers whose other end is a socket of the test, in `far`."""
    made: list[Worker] = []

    def make() -> Worker:
        ours, theirs = socket.socketpair()
        read, write = os.pipe()
        os.close(write)
        worker = Worker(len(made), selector, ours, read, 0.0)
        far[worker.number] = theirs
        made.append(worker)
        return worker

    yield make
    for worker in made:
        with suppress(OSError):
            worker.close()
    for end in far.values():
        end.close()
    far.clear()


far: dict[int, socket.socket] = {}


@pytest.fixture
def ended() -> list[Worker]:
    return []


@pytest.fixture
def idle(ended: list[Worker]) -> IdleWorkers:
    return IdleWorkers(ended.append)


def read(selector: selectors.BaseSelector) -> None:
    for key, _ in selector.select(1.0):
        key.data()


def test_the_one_that_was_used_last_serves_next(idle: IdleWorkers, new: New) -> None:
    first, second = new(), new()
    idle.put(first, 0.0)
    idle.put(second, 1.0)
    assert [idle.take() for _ in range(3)] == [second, first, None]


def test_all_but_one_end_after_a_while(idle: IdleWorkers, new: New, ended: list[Worker]) -> None:
    first, second = new(), new()
    idle.put(first, 0.0)
    assert idle.wake == float("inf")
    idle.put(second, 1.0)
    assert idle.wake == IDLE_SECONDS
    idle.expire(IDLE_SECONDS)
    assert ended == [first]
    idle.expire(1000.0)
    assert idle.take() is second


def test_no_more_wait_than_are_permitted(idle: IdleWorkers, new: New, ended: list[Worker]) -> None:
    made = [new() for _ in range(MAX_IDLE + 2)]
    for worker in made:
        idle.put(worker, 0.0)
    assert ended == made[MAX_IDLE:]


def test_one_that_has_ended_does_not_serve(
    idle: IdleWorkers, new: New, selector: selectors.BaseSelector
) -> None:
    worker = new()
    idle.put(worker, 0.0)
    far[worker.number].close()
    read(selector)
    assert idle.take() is None


def test_one_whose_fork_server_is_gone_does_not_serve(
    idle: IdleWorkers, new: New, ended: list[Worker]
) -> None:
    late, early = new(), new()
    late.adopted = True
    idle.put(late, 0.0)
    assert ended == [late]
    idle.put(early, 0.0)
    idle.forget(early)
    assert idle.take() is None


@pytest.mark.parametrize("data", [frame(ProbeResult(outcome="ok")), b"\0\0\0\7garbage"])
def test_one_that_sends_something_without_a_run_is_ended(
    idle: IdleWorkers,
    new: New,
    ended: list[Worker],
    selector: selectors.BaseSelector,
    data: bytes,
) -> None:
    worker = new()
    idle.put(worker, 0.0)
    far[worker.number].sendall(data)
    read(selector)
    assert ended == [worker]
    assert idle.take() is None


def test_a_process_ends_after_many_runs_or_with_much_memory() -> None:
    assert not is_worn(MAX_SHARED_RUNS - 1, MAX_SHARED_KIBIBYTES)
    assert is_worn(MAX_SHARED_RUNS, MAX_SHARED_KIBIBYTES)
    assert is_worn(1, MAX_SHARED_KIBIBYTES + 1)
