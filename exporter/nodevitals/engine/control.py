"""The agent's end of the fork server's socket: commands out, replies in, nothing blocks.

In: commands, with the descriptors that go with them. Out: a call for each reply.
"""

from __future__ import annotations

import contextlib
import math
import os
import selectors
import socket
from collections import deque
from collections.abc import Callable

import msgspec

from nodevitals.engine.protocol import FromForkServer, Ping
from nodevitals.linux.host import Clock
from nodevitals.wire import ProtocolError, decode, encode

# On a node whose processors or disk are overloaded, the fork server may get no CPU time for
# seconds; to replace it costs every run in flight.
SILENCE_SECONDS = 10.0
# With nothing to do for it; each command has a reply as well.
PING_SECONDS = 5.0
MAX_DATAGRAM_BYTES = 4096


class Control:
    """One fork server's socket, from its start to its end."""

    def __init__(
        self,
        sock: socket.socket,
        selector: selectors.BaseSelector,
        clock: Clock,
        on_reply: Callable[[FromForkServer], None],
    ) -> None:
        self._socket = sock
        self._selector = selector
        self._clock = clock
        self._on_reply = on_reply
        # What the socket could not take yet: it holds about 300 unread commands.
        self._unsent: deque[tuple[bytes, list[int]]] = deque()
        self._next_ping = 0.0
        self.open = True
        self.answered = False
        """Whether there was any reply."""
        self.answer_due = math.inf
        """When the fork server has been silent for too long; infinity where nothing is open."""
        sock.setblocking(False)
        selector.register(sock, selectors.EVENT_READ, self._on_event)

    @property
    def wake(self) -> float:
        """When `ping` is due, or a reply."""
        return self._next_ping if self.answer_due == math.inf else self.answer_due

    def ping(self, now: float) -> None:
        """Send a ping, where one is due."""
        if self.answer_due == math.inf and now >= self._next_ping:
            self.send(Ping())

    def send(
        self,
        command: msgspec.Struct,
        descriptors: list[int] | None = None,
        patience_seconds: float = SILENCE_SECONDS,
    ) -> None:
        """Send a command, or queue it. The descriptors are closed when it is sent, or dropped."""
        self._unsent.append((encode(command), descriptors or []))
        self._flush()
        now = self._clock.monotonic()
        self._next_ping = now + PING_SECONDS
        if self.answer_due == math.inf:
            self.answer_due = now + patience_seconds

    def read(self) -> None:
        """Take in the replies that have arrived."""
        while self.open:
            try:
                data = self._socket.recv(MAX_DATAGRAM_BYTES)
            except OSError:  # nothing more now, or reset because the fork server died
                return
            if not data:
                self.close()
                self.answer_due = min(self.answer_due, self._clock.monotonic() + SILENCE_SECONDS)
                return
            with contextlib.suppress(ProtocolError):
                reply = decode(data, FromForkServer)
                self.answer_due = math.inf
                self.answered = True
                self._on_reply(reply)

    def close(self) -> None:
        """Close the socket, which ends the fork server; drop what was not sent."""
        if self.open:
            self.open = False
            self._selector.unregister(self._socket)
            self._socket.close()
        while self._unsent:
            _close_all(self._unsent.popleft()[1])

    def _on_event(self) -> None:
        self._flush()
        self.read()

    def _flush(self) -> None:
        if not self.open:
            return
        try:
            while self._unsent:
                command, descriptors = self._unsent[0]
                socket.send_fds(self._socket, [command], descriptors)
                self._unsent.popleft()
                _close_all(descriptors)
        except BlockingIOError:
            pass
        except OSError:  # the fork server is dead, which `Processes.tick` finds
            while self._unsent:
                _close_all(self._unsent.popleft()[1])
        events = selectors.EVENT_READ | (selectors.EVENT_WRITE if self._unsent else 0)
        if self._selector.get_key(self._socket).events != events:
            self._selector.modify(self._socket, events, self._on_event)


def _close_all(descriptors: list[int]) -> None:
    for descriptor in descriptors:
        os.close(descriptor)
