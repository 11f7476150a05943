"""The stream of one request, with a limit on its head: no client may fill the memory."""

from __future__ import annotations

import io

# A peer's request has some 300 bytes. A connection costs its thread's stack, TLS, and this.
MAX_HEAD_BYTES = 8 * 1024


class HeadTooLargeError(Exception):
    """The head of a request is over the limit."""


class BoundedReader:
    """The stream of one request: a limit on the bytes of its head, and on those of its body."""

    def __init__(self, stream: io.BufferedIOBase) -> None:
        self._stream = stream
        self._left = MAX_HEAD_BYTES

    def readline(self, _limit: int = -1) -> bytes:
        """A line of the head, within the rest of the limit."""
        line = self._stream.readline(self._left + 1)
        self._left -= len(line)
        if self._left < 0:
            raise HeadTooLargeError
        return line

    def body(self, size: int) -> bytes:
        """The body, of a size within its limit."""
        return self._stream.read(size)

    def close(self) -> None:
        """Close the stream."""
        self._stream.close()
