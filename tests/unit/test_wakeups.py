"""A process between runs: which probes it reports to the agent, when, and how often."""

from __future__ import annotations

import os
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import suppress

import pytest

from nodevitals.engine import worker_end
from nodevitals.engine.worker_end import Outlet, Wakeups
from nodevitals.wire import FrameReader, FromWorker, Wanted, decode
from testbed.node import PATIENCE_SECONDS

ONE = Wanted("kernel_log", "kernel_log")
# What is reported twice arrives within this time: it is longer than the pause of these tests.
MORE_SECONDS = 1.0


class Process:
    """A process that waits for the agent, and a pipe that it waits for, too."""

    def __init__(self) -> None:
        self.agent, channel = socket.socketpair()
        self.wakeups = Wakeups(channel, Outlet(channel))
        self.received = b""
        self.reported_at = 0.0
        """When the first report arrived, on the monotonic clock."""
        self._channel = channel
        self._thread = threading.Thread(target=self._receive)

    def _receive(self) -> None:
        self.received = self.wakeups.receive()

    def start(self) -> None:
        self._thread.start()

    def reports(self, seconds: float = PATIENCE_SECONDS) -> list[Wanted]:
        """What arrives at the agent: a first report within these seconds, and what follows it."""
        self.agent.settimeout(seconds)
        try:
            data = self.agent.recv(1000)
        except TimeoutError:
            return []
        self.reported_at = time.monotonic()
        time.sleep(MORE_SECONDS)
        self.agent.setblocking(False)
        with suppress(BlockingIOError):
            data += self.agent.recv(1000)
        return [decode(body, FromWorker) for body in FrameReader().feed(data)]

    def end(self) -> bytes:
        self.agent.sendall(b"a run")
        self._thread.join(60)
        assert not self._thread.is_alive()
        return self.received

    def close(self) -> None:
        self.agent.close()
        self._channel.close()


@pytest.fixture
def process(monkeypatch: pytest.MonkeyPatch) -> Iterator[Process]:
    monkeypatch.setattr(worker_end, "PAUSE_SECONDS", 0.5)
    found = Process()
    yield found
    found.close()


def test_what_is_readable_is_reported_once(process: Process) -> None:
    read, write = os.pipe()
    process.wakeups.after_run(ONE, read)
    process.start()
    assert process.reports(1.0) == []
    os.write(write, b"x")
    assert process.reports() == [ONE]  # the pipe is still readable
    assert process.end() == b"a run"
    os.close(read)
    os.close(write)


def test_what_is_always_readable_is_reported_after_a_pause(process: Process) -> None:
    """As a flooded log, or a file."""
    with open(os.devnull, "rb") as null:
        began = time.monotonic()
        process.wakeups.after_run(ONE, null.fileno())
        process.start()
        assert process.reports() == [ONE]
        assert process.reported_at - began >= 0.5
        assert process.end() == b"a run"


def test_a_target_without_a_descriptor_is_not_waited_for(process: Process) -> None:
    with open(os.devnull, "rb") as null:
        process.wakeups.after_run(ONE, null.fileno())
        process.wakeups.after_run(ONE, None)
        process.start()
        assert process.reports(1.0) == []
        assert process.end() == b"a run"


def test_a_descriptor_that_was_closed_is_reported_once(process: Process) -> None:
    """The run that follows says what is wrong."""
    read, write = os.pipe()
    process.wakeups.after_run(ONE, read)
    os.close(read)
    os.close(write)
    process.start()
    assert process.reports() == [ONE]
    assert process.end() == b"a run"


def test_the_end_of_the_agent(process: Process) -> None:
    read, write = os.pipe()
    process.wakeups.after_run(ONE, read)
    process.agent.close()
    assert process.wakeups.receive() == b""
    os.write(write, b"x")
    process.wakeups.after_run(ONE, read)
    assert process.wakeups.receive() == b""
    os.close(read)
    os.close(write)
