"""What a run has read before its deadline, sent while it hangs.

A thread of the worker waits until the run's time is nearly over; a call into a driver, or a system
call, does not hold it up. Then it sends the samples so far, with the device and the call that the
run is in. In: the run's Readings. Out: one frame on the worker's channel.
"""

from __future__ import annotations

import contextlib
import math
import socket
import threading
import time

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


class Outlet:
    """The worker's end of its channel: whole frames, in the order of the runs."""

    def __init__(self, channel: socket.socket) -> None:
        self._channel = channel
        self._lock = threading.Lock()
        self._finished = 0

    def send(self, result: ProbeResult) -> bool:
        """Send the result of the run in flight, or an error where it cannot be sent. Whether it was
        sent as it is. Raises ConnectionError when the agent is gone.
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
        """The run is over."""
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
