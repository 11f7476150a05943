"""A stand-in for a server's HTTP API: good answers by path, and any path can answer badly."""

from __future__ import annotations

import contextlib
import socket
import socketserver
import struct
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

_LOGIN = b"<!doctype html><title>Sign in</title><form action=/login>\x1b]0;owned\x07"


class _Connection(socketserver.StreamRequestHandler):
    server: StandIn

    def handle(self) -> None:
        line = self.rfile.readline(65536).decode("latin-1").split()
        while self.rfile.readline(65536).strip():
            pass
        path = line[1].partition("?")[0] if len(line) > 1 else ""
        with contextlib.suppress(OSError):
            bad = self.server.bad.get(path) or self.server.bad.get("*")
            if bad is not None:
                BEHAVIOURS[bad](self.connection, self.server.closed)
            else:
                self.connection.sendall(answer(self.server.good.get(path, b""), 200))


class StandIn(socketserver.ThreadingTCPServer):
    """`good` has the bodies by path; `bad` the behaviour of a path, or of every path: `*`."""

    daemon_threads = True
    request_queue_size = 64

    def __init__(self, good: Mapping[str, bytes]) -> None:
        self.good = dict(good)
        self.bad: dict[str, str] = {}
        self.closed = threading.Event()
        super().__init__(("127.0.0.1", 0), _Connection)
        self.url = f"http://127.0.0.1:{self.server_address[1]}"


@contextmanager
def stand_in(good: Mapping[str, bytes]) -> Iterator[StandIn]:
    """A server that runs inside the with block; what waits in it ends with it."""
    with StandIn(good) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server
        server.closed.set()
        server.shutdown()


def answer(body: bytes, status: int, *headers: str) -> bytes:
    """A whole response."""
    lines = [f"HTTP/1.1 {status} Status", f"Content-Length: {len(body)}", "Connection: close"]
    return "\r\n".join([*lines, *headers, "", ""]).encode() + body


def _sends(*parts: bytes) -> Callable[[socket.socket, threading.Event], None]:
    return lambda connection, _: connection.sendall(b"".join(parts))


def _trickles(head: bytes) -> Callable[[socket.socket, threading.Event], None]:
    def behave(connection: socket.socket, closed: threading.Event) -> None:
        connection.sendall(head)
        while not closed.wait(0.05):
            connection.sendall(b"x")

    return behave


def _waits(_: socket.socket, closed: threading.Event) -> None:
    closed.wait(600)


def _endless(connection: socket.socket, closed: threading.Event) -> None:
    connection.sendall(b"HTTP/1.1 200 OK\r\n\r\n")
    while not closed.is_set():
        connection.sendall(bytes(1 << 18))


def _resets(connection: socket.socket, _: threading.Event) -> None:
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


_OPEN = b"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n"
BEHAVIOURS: dict[str, Callable[[socket.socket, threading.Event], None]] = {
    "silent": _waits,
    "trickling head": _trickles(b"HTTP/1.1 200 OK\r\nX: "),
    "trickling body": _trickles(_OPEN),
    "closed": _sends(),
    "reset": _resets,
    "no HTTP": _sends(b"220 mail.example.com ESMTP\r\n"),
    "binary": _sends(bytes(range(256)) * 64),
    "broken off": _sends(_OPEN, b'{"status": "success", "data"'),
    "login page": _sends(answer(_LOGIN, 200)),
    "empty": _sends(answer(b"", 200)),
    "another shape": _sends(answer(b'{"status": "success", "data": 7}', 200)),
    "a list": _sends(answer(b"[null, {}, 7]", 200)),
    "deep": _sends(answer(b"[" * 100_000, 200)),
    "not UTF-8": _sends(answer(b'{"data": "\xff\xfe"}', 200)),
    "half": _sends(answer(b'{"data": {"result": [', 200)),
    "encoded": _sends(answer(b"\x1f\x8b\x08" + bytes(100), 200, "Content-Encoding: gzip")),
    "401": _sends(answer(b"Unauthorized", 401, 'WWW-Authenticate: Basic realm="x"')),
    "403": _sends(answer(b"Forbidden", 403)),
    "404": _sends(answer(b"404 page not found", 404)),
    "500": _sends(answer(b"panic", 500)),
    "503": _sends(answer(b"starting \x1b[31mup", 503)),
    "redirect loop": _sends(answer(b"", 302, "Location: http://u:hunter2@127.0.0.1/login?a=b")),
    "many headers": _sends(answer(b"{}", 200, *[f"X-{n}: y" for n in range(500)])),
    "endless": _endless,
}
SLOW = ("silent", "trickling head", "trickling body")
