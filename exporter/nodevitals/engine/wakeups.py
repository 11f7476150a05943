"""What a process does between the runs of the probe that it keeps open: it receives what the agent
sends, and reports when the probe has something to read (`Probe.wakes_on`).

In: the channel, and the probe's descriptor. Out: bytes of the agent, and Wanted frames to it.
"""

from __future__ import annotations

import select
import socket
import time
from typing import NamedTuple

from nodevitals.engine.watch import Outlet
from nodevitals.wire import Wanted

# After a run: a log that is flooded costs no more than one that is read so often.
PAUSE_SECONDS = 2.0
_RECEIVE_BYTES = 65536


class _Source(NamedTuple):
    wanted: Wanted
    descriptor: int
    from_time: float
    """When it may be looked at, on the monotonic clock."""


class Wakeups:
    """Waits for the agent, and for the descriptor of a target; reports that once per run."""

    def __init__(self, channel: socket.socket, outlet: Outlet) -> None:
        self._channel = channel
        self._outlet = outlet
        self._source: _Source | None = None

    def after_run(self, wanted: Wanted, descriptor: int | None) -> None:
        """A run of this target has ended; this descriptor says when it is to run next."""
        self._source = None
        if descriptor is not None:
            self._source = _Source(wanted, descriptor, time.monotonic() + PAUSE_SECONDS)

    def receive(self) -> bytes:
        """The next bytes of the agent; b'' when it has closed the channel or is gone."""
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
        """The descriptors that are ready, or closed; none where the pause of the source ends."""
        poll, pause_seconds = select.poll(), source.from_time - time.monotonic()
        poll.register(self._channel, select.POLLIN)
        if pause_seconds <= 0:
            poll.register(source.descriptor, select.POLLIN)
        timeout = pause_seconds * 1000 + 1 if pause_seconds > 0 else None
        return [descriptor for descriptor, _ in poll.poll(timeout)]
