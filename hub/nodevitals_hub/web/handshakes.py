"""Connections whose TLS handshake is not done: a limited number, whatever clients open.

In: a listening socket. Out: its connections; one over the limit ends the oldest that waits, as a
protocol has no connection before the handshake that could be counted.
"""

from __future__ import annotations

import socket
from contextlib import suppress
from typing import Any

MAX_HANDSHAKES = 256


class Listening(socket.socket):
    """A listening socket that knows which of its connections wait for a handshake."""

    def __init__(self, *arguments: Any, **more: Any) -> None:
        super().__init__(*arguments, **more)
        self._waiting: dict[int, socket.socket] = {}

    @classmethod
    def on(cls, other: socket.socket) -> Listening:
        """Another socket on the same address."""
        return cls(other.family, other.type, other.proto, fileno=other.dup().detach())

    def accept(self) -> tuple[socket.socket, Any]:
        """Accept a connection."""
        connection, address = super().accept()
        number = connection.fileno()
        self._waiting.pop(number, None)  # of a connection that was closed
        self._waiting[number] = connection
        if len(self._waiting) > MAX_HANDSHAKES:
            with suppress(OSError):  # it is closed
                self._waiting.pop(next(iter(self._waiting))).shutdown(socket.SHUT_RDWR)
        return connection, address

    def established(self, number: int) -> None:
        """The connection with this file descriptor has made its handshake."""
        self._waiting.pop(number, None)
