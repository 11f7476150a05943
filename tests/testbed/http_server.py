"""An HTTP server on loopback whose responses are those of a function of the test bed.

In: a function that gets each request. Out: the server's port and address, inside a with block.
"""

from __future__ import annotations

import ssl
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from email.message import Message
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import MappingProxyType
from typing import NamedTuple, Self


class Request(NamedTuple):
    """What a client sent; the path has its query."""

    method: str
    path: str
    headers: Message
    body: bytes


class Response(NamedTuple):
    """What the server sends, and what it calls once all of it is sent."""

    status: int = 200
    body: bytes = b""
    headers: Mapping[str, str] = MappingProxyType({})
    sent: Callable[[], object] = lambda: None


class Connection(BaseHTTPRequestHandler):
    """One client's connection, closed after one response. No response follows half a request."""

    server: HttpServer

    def handle(self) -> None:
        """Handle all requests; a client may leave at any time."""
        with suppress(OSError):
            super().handle()

    def respond(self) -> None:
        """Handle one request."""
        length = int(self.headers.get("Content-Length", 0))
        body = self.rfile.read(length)
        if len(body) < length:
            self.close_connection = True
            return
        response = self.server.respond(Request(self.command, self.path, self.headers, body))
        self.send_response(response.status)
        for name, value in response.headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(response.body)))
        self.end_headers()
        self.wfile.write(response.body)
        response.sent()

    do_GET = do_POST = do_PUT = respond  # noqa: N815

    def log_message(self, *_: object) -> None:
        """Write nothing."""


class KeptConnection(Connection):
    """A connection that stays open between requests."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True


class HttpServer(ThreadingHTTPServer):
    """The server; each connection has a thread, which ends with the connection or the tests."""

    daemon_threads = True
    # Connections that are not accepted at once: with 5, the next one is tried again after a second.
    request_queue_size = 256

    def __init__(
        self,
        respond: Callable[[Request], Response],
        host: str = "127.0.0.1",
        tls: ssl.SSLContext | None = None,
        connection: type[Connection] = Connection,
    ) -> None:
        super().__init__((host, 0), connection)
        self.respond = respond
        self.port = self.server_port
        self.address = f"127.0.0.1:{self.port}"
        self.url = f"{'https' if tls else 'http'}://{self.address}"
        if tls is not None:
            # The handshake is that of the connection's thread.
            self.socket = tls.wrap_socket(
                self.socket, server_side=True, do_handshake_on_connect=False
            )

    def __enter__(self) -> Self:
        threading.Thread(target=self.serve_forever, args=(0.02,), daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self.shutdown()
        self.server_close()
