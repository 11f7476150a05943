"""What a process does between the runs of the probes that it keeps open: it receives what the agent
sends, and reports which of the probes has something to read (`Probe.wakes_on`).

In: the channel, and a descriptor per target. Out: bytes of the agent, and Wanted frames to it.
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
    from_time: float
    """When it may be looked at, on the monotonic clock."""


class Wakeups:
    """Waits for the agent, and for one descriptor per target; reports each once per run."""

    def __init__(self, channel: socket.socket, outlet: Outlet) -> None:
        self._channel = channel
        self._outlet = outlet
        self._sources: dict[int, _Source] = {}

    def after_run(self, wanted: Wanted, descriptor: int | None) -> None:
        """A run of this target has ended; this descriptor says when it is to run next."""
        self._sources = {
            place: source for place, source in self._sources.items() if source.wanted != wanted
        }
        if descriptor is not None:
            self._sources[descriptor] = _Source(wanted, time.monotonic() + PAUSE_SECONDS)

    def receive(self) -> bytes:
        """The next bytes of the agent; b'' when it has closed the channel or is gone."""
        while self._sources:
            ready = self._wait()
            if self._channel.fileno() in ready:
                break
            for descriptor in ready:
                self._outlet.send_wanted(self._sources.pop(descriptor).wanted)
        try:
            return self._channel.recv(_RECEIVE_BYTES)
        except ConnectionError:  # the agent ended with our last result unread
            return b""

    def _wait(self) -> list[int]:
        """The descriptors that are ready, or closed; none where another one may be looked at."""
        poll, now = select.poll(), time.monotonic()
        poll.register(self._channel, select.POLLIN)
        pauses = []
        for descriptor, source in self._sources.items():
            if source.from_time <= now:
                poll.register(descriptor, select.POLLIN)
            else:
                pauses.append(source.from_time - now)
        return [one for one, _ in poll.poll(min(pauses) * 1000 + 1 if pauses else None)]
