"""A server with a limited number of connections, each with a thread and a deadline.

In: a listening socket and its clients. Out: threads that handle one connection each. At the limit,
the oldest connection that has not completed a request is closed, so that silent clients cannot keep
a scrape out. A closed connection counts until its thread has ended: threads and descriptors stay
within the limit.
"""

from __future__ import annotations

import contextlib
import errno
import http.server
import logging
import select
import socket
import socketserver
import threading
import time
from typing import Any

from nodevitals.quantities import parse_listen_address

MAX_CONNECTIONS = 128
# Time for the thread of a connection that was closed to make room to end; meanwhile new clients
# wait in the kernel.
ROOM_SECONDS = 0.5
# Pause between attempts to accept while descriptors or memory are lacking.
SHORTAGE_SECONDS = 0.1
_SHORTAGES = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})
# Time limit from the first byte of a connection, with the handshake, to the end of the first head.
HEAD_SECONDS = 10.0
# Time limit to write a response, or to notice that the connection was cut.
RESPONSE_SECONDS = 60.0
# Time between two checks of the connections' deadlines: each wakes an idle process.
SWEEP_SECONDS = 2.0
THREAD_STACK_BYTES = 512 * 1024

log = logging.getLogger(__name__)


class Connection:
    """One accepted connection, and the deadline of its current phase."""

    def __init__(self, sock: socket.socket) -> None:
        self.socket = sock
        self.completed = False
        self.since = time.monotonic()
        self.deadline = self.since + HEAD_SECONDS

    def expect(self, seconds: float) -> None:
        """Start a new phase, which must end within so many seconds."""
        self.since = time.monotonic()
        self.deadline = self.since + seconds

    def cut(self) -> None:
        """End the connection from another thread: its own thread reads end of file, and ends."""
        # Not the SSL socket's method: it would change the TLS state that the other thread uses.
        with contextlib.suppress(OSError):
            socket.socket.shutdown(self.socket, socket.SHUT_RDWR)

    def is_gone(self) -> bool:
        """Whether the client has closed its side, or this side was cut (its own thread)."""
        poll = select.poll()
        poll.register(self.socket, select.POLLRDHUP)
        return bool(poll.poll(0))


class CappedServer(socketserver.ThreadingMixIn, http.server.HTTPServer):
    """A threading server that limits its connections and closes those past their deadline."""

    daemon_threads = True
    block_on_close = False
    allow_reuse_address = True
    request_queue_size = 256
    max_connections = MAX_CONNECTIONS

    def __init__(
        self, listen_address: str, handler: type[http.server.BaseHTTPRequestHandler]
    ) -> None:
        self.evicted = {"cap": 0, "deadline": 0}
        self._connections: dict[int, Connection] = {}
        # Connections that were cut to make room, whose threads have not ended yet.
        self._leaving: dict[int, Connection] = {}
        self._lock = threading.Lock()
        self._room = threading.Condition(self._lock)
        self.address_family, address = parse_listen_address(listen_address)
        super().__init__(address, handler)

    def server_bind(self) -> None:
        """Bind without the base class's name look-up, which may hang in the name service."""
        if self.address_family == socket.AF_INET6:
            self.socket.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        socketserver.TCPServer.server_bind(self)
        self.server_name, self.server_port = self.server_address[:2]  # type: ignore[assignment]

    def start(self) -> threading.Thread:
        """Serve from a daemon thread."""
        threading.stack_size(THREAD_STACK_BYTES)
        thread = threading.Thread(
            target=self.serve_forever, args=(SWEEP_SECONDS,), name="web", daemon=True
        )
        thread.start()
        return thread

    def address_text(self) -> str:
        """The server's address and port as in a URL."""
        host, port = self.server_address[:2]
        return (
            f"[{host!s}]:{port}" if self.address_family == socket.AF_INET6 else f"{host!s}:{port}"
        )

    def record_of(self, sock: socket.socket) -> Connection:
        """The record that was made when this socket was accepted."""
        with self._lock:
            return self._leaving.get(id(sock)) or self._connections[id(sock)]

    def get_request(self) -> tuple[socket.socket, Any]:
        """Accept a connection. Without a free descriptor, close a connection for the next try."""
        try:
            return super().get_request()
        except OSError as error:
            if error.errno in _SHORTAGES:
                with self._lock:
                    self._evict()
                    # The client still waits, and would be accepted again without a pause.
                    self._room.wait(ROOM_SECONDS if self._leaving else SHORTAGE_SECONDS)
            raise

    def process_request(self, request: Any, client_address: Any) -> None:
        """Register the connection and start its thread; at the limit, cut another one first."""
        with self._lock:
            if not self._has_room():
                self._evict()
            if not self._room.wait_for(self._has_room, ROOM_SECONDS):
                self.evicted["cap"] += 1
                self.shutdown_request(request)
                return
            self._connections[id(request)] = Connection(request)
        try:
            super().process_request(request, client_address)
        except (RuntimeError, MemoryError):  # no further thread can be started
            self._end(id(request))

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        """Handle one connection to its end."""
        try:
            self.finish_request(request, client_address)
        except (OSError, ValueError):
            pass  # a failed handshake, or a connection that was reset or cut: no error of ours
        except Exception:
            log.exception("request from %s", client_address[0])
        finally:
            self._end(id(request))

    def service_actions(self) -> None:
        """Cut the connections past their deadline: after each accept, and every 2 s."""
        now = time.monotonic()
        with self._lock:
            for connection in self._connections.values():
                if now > connection.deadline:
                    connection.deadline = now + RESPONSE_SECONDS  # cut once
                    connection.cut()
                    self.evicted["deadline"] += 1

    def _has_room(self) -> bool:
        return len(self._connections) + len(self._leaving) < self.max_connections

    def _evict(self) -> None:
        """Cut the oldest connection without a complete request, otherwise the longest idle one."""
        if not self._connections:
            return
        key, connection = min(
            self._connections.items(), key=lambda item: (item[1].completed, item[1].since)
        )
        # The thread reads the end of the stream and closes it; it must not be cut a second time.
        del self._connections[key]
        self._leaving[key] = connection
        connection.cut()
        self.evicted["cap"] += 1

    def _end(self, key: int) -> None:
        # `cut` is called under the same lock, so that it never meets a reused descriptor.
        with self._lock:
            connection = self._leaving.pop(key, None) or self._connections.pop(key)
            self.shutdown_request(connection.socket)
            self._room.notify()
