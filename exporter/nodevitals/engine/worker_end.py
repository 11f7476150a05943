"""The worker's end of its channel: it sends the results of runs, and receives what the agent sends.

Shortly before the deadline of a run that hangs, a thread sends what the run has read; a call into a
driver or the kernel does not block that thread. Between the runs of a probe that stays open, the
worker waits for the agent, and reports when the probe has something to read (`Probe.wakes_on`).
"""

from __future__ import annotations

import contextlib
import math
import select
import socket
import threading
import time
from typing import NamedTuple

from nodevitals.probe import Readings
from nodevitals.wire import (
    MAX_DEVICE_CHARACTERS,
    ProbeResult,
    ProtocolError,
    Wanted,
    frame,
    one_line,
)

_STACK_BYTES = 256 * 1024
# Pause after a run: reading a flooded log costs no more than one run per pause.
PAUSE_SECONDS = 2.0
_RECEIVE_BYTES = 65536


class Outlet:
    """The worker's end of its channel: whole frames, in the order of the runs."""

    def __init__(self, channel: socket.socket) -> None:
        self._channel = channel
        self._lock = threading.Lock()
        self._finished = 0

    def send(self, result: ProbeResult) -> bool:
        """Send the result of the run in flight, or an error where the result cannot be sent.
        Returns whether the result itself was sent. Raises ConnectionError when the agent is gone.
        """
        data, whole = _framed(result)
        with self._lock:
            self._finished += 1
            self._channel.sendall(data)
        return whole

    def send_wanted(self, wanted: Wanted) -> None:
        """Tell the agent that a run has something to read, unless the agent is gone."""
        with self._lock, contextlib.suppress(ConnectionError):
            self._channel.sendall(frame(wanted))

    def finished(self) -> int:
        """Number of runs whose result was sent."""
        return self._finished

    def send_unfinished(self, result: ProbeResult, finished: int) -> None:
        """Send what a run has read so far, unless its result was sent meanwhile."""
        with self._lock, contextlib.suppress(OSError, ProtocolError, UnicodeError):
            if self._finished == finished:
                self._channel.sendall(frame(result))


def _framed(result: ProbeResult) -> tuple[bytes, bool]:
    try:
        return frame(result), True
    except ProtocolError as error:
        return frame(ProbeResult(outcome="error", reason="too_large", text=str(error))), False
    except UnicodeEncodeError as error:  # a file's name, or memory that was overwritten
        text = one_line(f"a text that is no Unicode: {error.object!a}")
        return frame(ProbeResult(outcome="error", reason="encoding", text=text)), False


class Watch:
    """Sends what one run has read, once, when its time is nearly over."""

    def __init__(self, outlet: Outlet, report_at: float) -> None:
        self._outlet = outlet
        self._report_at = report_at
        self._run = outlet.finished()
        self._timer: threading.Timer | None = None

    def start(self, readings: Readings) -> None:
        """Start waiting, once, in a thread that does not outlive the process."""
        if self._timer is None and self._report_at < math.inf:
            threading.stack_size(_STACK_BYTES)
            seconds = max(0.0, self._report_at - time.monotonic())
            self._timer = threading.Timer(seconds, self.report, [readings])
            self._timer.daemon = True
            self._timer.start()

    def stop(self) -> None:
        """Stop waiting: the run has ended."""
        if self._timer is not None:
            self._timer.cancel()

    def report(self, readings: Readings) -> None:
        """Send what the run has read so far."""
        result = ProbeResult(
            outcome="timeout",
            reason="timeout",
            text=one_line(readings.call),
            samples=tuple(readings.samples),
            unfinished_at=one_line(readings.device, MAX_DEVICE_CHARACTERS),
        )
        self._outlet.send_unfinished(result, self._run)


class _Source(NamedTuple):
    wanted: Wanted
    descriptor: int
    from_time: float
    """When it may be looked at, on the monotonic clock."""


class Wakeups:
    """Waits for the agent and for a target's descriptor; reports the latter once per run."""

    def __init__(self, channel: socket.socket, outlet: Outlet) -> None:
        self._channel = channel
        self._outlet = outlet
        self._source: _Source | None = None

    def after_run(self, wanted: Wanted, descriptor: int | None) -> None:
        """A run of this target has ended; this descriptor is readable when it must run again."""
        self._source = None
        if descriptor is not None:
            self._source = _Source(wanted, descriptor, time.monotonic() + PAUSE_SECONDS)

    def receive(self) -> bytes:
        """The next bytes from the agent; b'' when it has closed the channel or is gone."""
        while self._source is not None:
            ready = self._wait(self._source)
            if self._channel.fileno() in ready:
                break
            if ready:
                self._outlet.send_wanted(self._source.wanted)
                self._source = None
        try:
            return self._channel.recv(_RECEIVE_BYTES)
        except ConnectionError:  # the agent ended with our last result unread
            return b""

    def _wait(self, source: _Source) -> list[int]:
        """The descriptors that are readable or closed; none where the source's pause ends."""
        poll, pause_seconds = select.poll(), source.from_time - time.monotonic()
        poll.register(self._channel, select.POLLIN)
        if pause_seconds <= 0:
            poll.register(source.descriptor, select.POLLIN)
        timeout = pause_seconds * 1000 + 1 if pause_seconds > 0 else None
        return [descriptor for descriptor, _ in poll.poll(timeout)]
