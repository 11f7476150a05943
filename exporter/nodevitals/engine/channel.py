"""The agent's end of one worker's channel, and of its stderr.

In: bytes from a process that may be corrupted. Out: decoded results, or a call that reports bytes
that no worker sends. Nothing blocks.
"""

from __future__ import annotations

import contextlib
import os
import selectors
import socket
from collections.abc import Callable
from typing import Any

import msgspec

from nodevitals.wire import (
    MAX_FRAME_BYTES,
    FrameReader,
    FromWorker,
    ProtocolError,
    Wanted,
    decode,
    frame,
)

READ_BYTES = 256 * 1024
STDERR_BYTES = 64 * 1024
MAX_STDERR_CHARACTERS = 2000
# A worker sends one per probe that it keeps open; the limit leaves room for more.
MAX_WANTED = 64


class Worker:
    """One worker process. The code that starts it sets the callbacks, and `replies`: the type of
    the messages that the worker sends.

    `requested`: the monotonic time of the request to start it. `pid`: None until it has started.
    `signalled`: the last signal that was delivered to it. `adopted`: its fork server has ended,
    and the agent itself is now its parent.
    """

    def __init__(
        self,
        number: int,
        selector: selectors.BaseSelector,
        channel: socket.socket,
        stderr: int,
        now: float,
    ) -> None:
        self.number = number
        self.requested = now
        self.pid: int | None = None
        self.signalled = 0
        self.adopted = False
        self.replies: Any = FromWorker
        self.on_result: Callable[[Any], None] = lambda _: None
        self.on_wanted: Callable[[Wanted], None] = lambda _: None
        self.on_garbage: Callable[[str], None] = lambda _: None
        self.on_exit: Callable[[str], None] = lambda _: None
        self._selector = selector
        self._channel = channel
        self._stderr = stderr
        self._reader = FrameReader()
        self._unsent = bytearray()
        self._open = True
        self._wanted = 0
        channel.setblocking(False)
        os.set_blocking(stderr, False)
        selector.register(channel, selectors.EVENT_READ, self._read)

    @property
    def open(self) -> bool:
        """Whether messages can arrive: no end of the process has been seen yet."""
        return self._open

    def send(self, *messages: msgspec.Struct) -> None:
        """Queue messages; what the socket cannot take now is sent later."""
        self._wanted = 0
        for message in messages:
            self._unsent += frame(message)
        self._flush()

    def stderr_tail(self) -> str:
        """The end of what the worker wrote to stderr since the last call, on one line."""
        data = b""
        with contextlib.suppress(BlockingIOError, OSError):
            data = os.read(self._stderr, STDERR_BYTES)
        text = " ".join(data.decode("utf-8", "replace").split())
        return text[-MAX_STDERR_CHARACTERS:]

    def drain(self) -> None:
        """Read what an ended worker left in its channel: at most one frame."""
        for _ in range(MAX_FRAME_BYTES // READ_BYTES + 1):
            if self._open:
                self._read()
        self.close_channel()

    def close_channel(self) -> None:
        """Close the channel: nothing more is read from the worker."""
        if self._open:
            self._open = False
            self._selector.unregister(self._channel)
            self._channel.close()

    def close(self) -> None:
        """Close the channel and stderr."""
        self.close_channel()
        os.close(self._stderr)

    def _read(self) -> None:
        try:
            self._flush()
            data = self._channel.recv(READ_BYTES)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self.close_channel()
            return
        try:
            for body in self._reader.feed(data):
                self._take(decode(body, self.replies))
        except ProtocolError as error:
            self.close_channel()
            self.on_garbage(str(error))

    def _take(self, message: Any) -> None:
        if not isinstance(message, Wanted):
            self.on_result(message)
            return
        self._wanted += 1
        if self._wanted > MAX_WANTED:
            raise ProtocolError(f"over {MAX_WANTED} wanted runs, and none has come")
        self.on_wanted(message)

    def _flush(self) -> None:
        if not self._open:
            return
        try:
            while self._unsent:
                del self._unsent[: self._channel.send(self._unsent)]
        except BlockingIOError:
            pass
        except OSError:
            self._unsent.clear()
        events = selectors.EVENT_READ | (selectors.EVENT_WRITE if self._unsent else 0)
        key = self._selector.get_key(self._channel)
        if key.events != events:
            self._selector.modify(self._channel, events, key.data)
