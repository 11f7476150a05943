"""HTTP for scrapers, on the standard library's threading server.

In: requests, some of them hostile. Out: bodies that lie ready. A scrape touches no hardware, no
disk and no child process. Every connection has a thread, a deadline for what it is doing, and a
place under a cap: where the cap is reached, the oldest connection that has not completed a request
makes room, so that silent clients cannot shut out a scrape.
"""

from __future__ import annotations

import base64
import binascii
import contextlib
import html
import http.server
import io
import logging
import socket
import socketserver
import threading
import time
from collections.abc import Callable
from http import HTTPStatus
from typing import Any, Protocol
from urllib.parse import parse_qs, urlsplit

from nodevitals import __version__
from nodevitals.snapshot import Variant
from nodevitals.webconfig import Access

MAX_CONNECTIONS = 128
MAX_HEAD_BYTES = 16 * 1024
# From the connection's first byte to the end of its first request's head, handshake included.
HEAD_SECONDS = 10.0
RESPONSE_SECONDS = 60.0
# Prometheus' own client gives up an idle connection after five minutes.
IDLE_SECONDS = 330.0
SWEEP_SECONDS = 0.5
THREAD_STACK_BYTES = 512 * 1024

TEXT = "text/plain; version=0.0.4; charset=utf-8"
OPENMETRICS = "application/openmetrics-text; version=1.0.0; charset=utf-8"

log = logging.getLogger(__name__)


class Agent(Protocol):
    """What the web asks of the rest."""

    def scrape(self, variant: Variant) -> bytes:
        """The body of a scrape."""

    def probe_names(self) -> frozenset[str]:
        """What collect[] may name."""

    def health(self) -> str:
        """'' while the supervisor's loop ticks, else what is wrong."""

    def readiness(self) -> str:
        """'' once every target has ended a run, else which have not."""

    def reload(self) -> str:
        """Load the configuration anew; '' or what is wrong with it."""


class Connection:
    """One accepted connection and what it is doing."""

    def __init__(self, sock: socket.socket) -> None:
        self.socket = sock
        self.completed = False
        self.since = time.monotonic()
        self.deadline = self.since + HEAD_SECONDS

    def expect(self, seconds: float) -> None:
        """A new phase begins, which must end within so many seconds."""
        self.since = time.monotonic()
        self.deadline = self.since + seconds

    def cut(self) -> None:
        """End it from another thread: its own gets an end of file and goes."""
        # Not the SSL socket's method, which would pull the TLS state from under its thread.
        with contextlib.suppress(OSError):
            socket.socket.shutdown(self.socket, socket.SHUT_RDWR)


def wants_openmetrics(accept: str) -> bool:
    """Whether an Accept header prefers OpenMetrics to the text format."""
    quality = {"application/openmetrics-text": 0.0, "text/plain": 0.0}
    for part in accept.split(","):
        kind, *parameters = (piece.strip().lower() for piece in part.split(";"))
        values = dict(item.split("=", 1) for item in parameters if "=" in item)
        if kind in quality and values.get("version", "1.0.0") in ("1.0.0", "0.0.1", "0.0.4"):
            quality[kind] = max(quality[kind], _quality(values.get("q", "1")))
    preferred, plain = quality.values()
    return preferred > 0 and preferred >= plain


def accepts_gzip(accept_encoding: str) -> bool:
    """Whether an Accept-Encoding header takes gzip."""
    for part in accept_encoding.split(","):
        name, _, parameter = part.strip().lower().partition(";")
        if name.strip() == "gzip":
            return _quality(parameter.strip().removeprefix("q=") or "1") > 0
    return False


def _quality(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return 0.0


class _HeadTooLargeError(Exception):
    pass


class _HeadReader:
    """The request stream, with a limit on the bytes of one head."""

    def __init__(self, stream: io.BufferedReader) -> None:
        self._stream = stream
        self.left = MAX_HEAD_BYTES

    def readline(self, _limit: int = -1) -> bytes:
        """A line, within what is left of the head."""
        line = self._stream.readline(self.left + 1)
        self.left -= len(line)
        if self.left < 0:
            raise _HeadTooLargeError
        return line

    def close(self) -> None:
        """Close the stream."""
        self._stream.close()


class Handler(http.server.BaseHTTPRequestHandler):
    """One connection's thread."""

    server: Server
    protocol_version = "HTTP/1.1"
    server_version = f"nodevitals/{__version__}"
    sys_version = ""
    disable_nagle_algorithm = True
    wbufsize = -1  # head and body in one segment; apart they cost a delayed ACK, 40 ms
    error_message_format = "%(code)d %(message)s\n"
    error_content_type = "text/plain; charset=utf-8"

    def setup(self) -> None:
        """Wrap the socket where TLS is on; the handshake runs here, off the accept loop."""
        self.record = self.server.record_of(self.request)
        tls = self.server.access.tls
        if tls is not None:
            self.request = tls.wrap_socket(
                self.request, server_side=True, do_handshake_on_connect=False
            )
            self.record.socket = self.request
            self.request.do_handshake()
        super().setup()
        self.head = _HeadReader(self.rfile)  # type: ignore[arg-type]
        self.rfile = self.head  # type: ignore[assignment]

    def handle_one_request(self) -> None:
        """One request, its head limited in size."""
        self.head.left = MAX_HEAD_BYTES
        try:
            super().handle_one_request()
            self.record.completed = True
            self.record.expect(IDLE_SECONDS)
        except _HeadTooLargeError:
            self.close_connection = True
            self.requestline, self.request_version, self.command = "", self.protocol_version, ""
            self.send_error(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE)
        except (BrokenPipeError, ConnectionError, TimeoutError):
            self.close_connection = True

    def parse_request(self) -> bool:
        """Parse the head; what the request brings beyond it is not read, so it ends here."""
        parsed = super().parse_request()
        self.record.expect(RESPONSE_SECONDS)
        if parsed and ("Content-Length" in self.headers or "Transfer-Encoding" in self.headers):
            self.close_connection = self.headers.get("Content-Length") != "0"
        return parsed

    def do_GET(self) -> None:
        """Serve what there is to read."""
        url = urlsplit(self.path)
        routes: dict[str, Callable[[str], None]] = {
            self.server.telemetry_path: self._metrics,
            "/": self._landing,
            "/healthz": lambda _: self._status(self.server.agent.health()),
            "/readyz": lambda _: self._status(self.server.agent.readiness()),
        }
        route = routes.get(url.path)
        if url.path not in ("/healthz", "/readyz") and not self._admitted():
            return
        if route is None:
            self._answer(HTTPStatus.NOT_FOUND, b"404 not found\n")
        else:
            route(url.query)

    do_HEAD = do_GET

    def do_POST(self) -> None:
        """Reload, where that is switched on."""
        if not self._admitted():
            return
        if urlsplit(self.path).path != "/-/reload":
            self._answer(HTTPStatus.NOT_FOUND, b"404 not found\n")
        elif not self.server.lifecycle:
            text = b"Lifecycle API is not enabled: start with --web.enable-lifecycle.\n"
            self._answer(HTTPStatus.FORBIDDEN, text)
        else:
            problem = self.server.agent.reload()
            status = HTTPStatus.INTERNAL_SERVER_ERROR if problem else HTTPStatus.OK
            self._answer(status, (problem or "reloaded").encode() + b"\n")

    do_PUT = do_POST

    def _metrics(self, query: str) -> None:
        try:
            names = parse_qs(query, max_num_fields=100).get("collect[]", [])
        except ValueError:
            self._answer(HTTPStatus.BAD_REQUEST, b"too many parameters\n")
            return
        unknown = sorted(set(names) - self.server.agent.probe_names())
        if unknown:
            known = ", ".join(sorted(self.server.agent.probe_names()))
            text = f"collect[]: no probe {unknown[0]!r}; there are: {known}\n"
            self._answer(HTTPStatus.BAD_REQUEST, text.encode())
            return
        variant = Variant(
            openmetrics=wants_openmetrics(self.headers.get("Accept", "")),
            compressed=accepts_gzip(self.headers.get("Accept-Encoding", "")),
            probes=frozenset(names) if names else None,
        )
        body = self.server.agent.scrape(variant)
        extra = {"Content-Encoding": "gzip"} if variant.compressed else {}
        content_type = OPENMETRICS if variant.openmetrics else TEXT
        self._answer(HTTPStatus.OK, body, content_type, extra)

    def _landing(self, _: str) -> None:
        path = html.escape(self.server.telemetry_path)
        items = "".join(
            f'<li><a href="{path}?collect[]={name}">{name}</a></li>'
            for name in sorted(self.server.agent.probe_names())
        )
        page = (
            f"<!doctype html><title>nodevitals</title><h1>nodevitals {__version__}</h1>"
            f'<p><a href="{path}">Metrics</a>, or those of one probe:</p><ul>{items}</ul>'
            '<p><a href="/healthz">Health</a> <a href="/readyz">Readiness</a></p>\n'
        )
        self._answer(HTTPStatus.OK, page.encode(), "text/html; charset=utf-8")

    def _status(self, problem: str) -> None:
        status = HTTPStatus.SERVICE_UNAVAILABLE if problem else HTTPStatus.OK
        self._answer(status, (problem or "ok").encode() + b"\n")

    def _admitted(self) -> bool:
        access = self.server.access
        if access.open_to_all or self._knows_password(access):
            return True
        challenge = {"WWW-Authenticate": 'Basic realm="nodevitals", charset="UTF-8"'}
        self._answer(HTTPStatus.UNAUTHORIZED, b"Unauthorized\n", extra=challenge)
        return False

    def _knows_password(self, access: Access) -> bool:
        scheme, _, token = self.headers.get("Authorization", "").partition(" ")
        if scheme.lower() != "basic":
            return False
        try:
            user, colon, password = base64.b64decode(token, validate=True).decode().partition(":")
        except (binascii.Error, ValueError):
            return False
        return bool(colon) and access.admits(user, password)

    def _answer(
        self,
        status: HTTPStatus,
        body: bytes,
        content_type: str = "text/plain; charset=utf-8",
        extra: dict[str, str] | None = None,
    ) -> None:
        self.send_response(status)
        headers = {"Content-Type": content_type, "Content-Length": str(len(body))}
        for name, value in {**headers, **self.server.access.headers, **(extra or {})}.items():
            self.send_header(name, value)
        if self.close_connection:
            self.send_header("Connection", "close")
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """Requests are not logged: scrapes are many and none of them is news."""
        log.debug("%s %s", self.client_address[0], format % args)


class Server(socketserver.ThreadingMixIn, http.server.HTTPServer):
    """Accepts, caps, sweeps."""

    daemon_threads = True
    block_on_close = False
    allow_reuse_address = True
    request_queue_size = 256

    def __init__(
        self,
        listen_address: str,
        agent: Agent,
        access: Access,
        telemetry_path: str = "/metrics",
        lifecycle: bool = False,
    ) -> None:
        self.agent = agent
        self.access = access
        self.telemetry_path = telemetry_path
        self.lifecycle = lifecycle
        self.evicted = {"cap": 0, "deadline": 0}
        self._connections: dict[int, Connection] = {}
        # Cut to make room; their threads have not noticed yet.
        self._leaving: dict[int, Connection] = {}
        self._lock = threading.Lock()
        self.address_family, address = parse_listen_address(listen_address)
        super().__init__(address, Handler)

    def server_bind(self) -> None:
        """Bind without the base class's name look-up, which asks a name service that may hang."""
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

    def record_of(self, sock: socket.socket) -> Connection:
        """The record that was made when this socket was accepted."""
        with self._lock:
            return self._leaving.get(id(sock)) or self._connections[id(sock)]

    def process_request(self, request: Any, client_address: Any) -> None:
        """Give the connection a place and a thread, making room where there is none."""
        with self._lock:
            if len(self._connections) >= MAX_CONNECTIONS:
                self._evict()
            self._connections[id(request)] = Connection(request)
        try:
            super().process_request(request, client_address)
        except RuntimeError:  # no thread to be had
            self._forget(id(request))
            self.shutdown_request(request)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        """One connection from its first byte to its last."""
        try:
            self.finish_request(request, client_address)
        except (OSError, ValueError):
            pass  # a handshake refused, a connection reset or cut: the peer's affair
        except Exception:
            log.exception("request from %s", client_address[0])
        finally:
            self.shutdown_request(self._forget(id(request)).socket)

    def service_actions(self) -> None:
        """Between accepts, and twice a second: cut what is past its deadline."""
        now = time.monotonic()
        with self._lock:
            for connection in self._connections.values():
                if now > connection.deadline:
                    connection.deadline = now + RESPONSE_SECONDS  # cut once
                    connection.cut()
                    self.evicted["deadline"] += 1

    def _evict(self) -> None:
        """Cut the oldest connection that has completed no request; else the longest idle one."""
        key, connection = min(
            self._connections.items(), key=lambda item: (item[1].completed, item[1].since)
        )
        # Out of the count at once; its thread finds the end of the stream and closes it.
        del self._connections[key]
        self._leaving[key] = connection
        connection.cut()
        self.evicted["cap"] += 1

    def _forget(self, key: int) -> Connection:
        with self._lock:
            return self._leaving.pop(key, None) or self._connections.pop(key)


def parse_listen_address(text: str) -> tuple[socket.AddressFamily, tuple[str, int]]:
    """`:9855`, `127.0.0.1:9855`, `[::1]:9855` as a family and an address. Raises ValueError."""
    host, colon, port = text.rpartition(":")
    if not colon or not port.isdigit() or int(port) > 65535:
        raise ValueError(f"{text!r} is not a listen address: write it like :9855 or 127.0.0.1:9855")
    host = host.removeprefix("[").removesuffix("]")
    if host == "":
        if socket.has_dualstack_ipv6():
            return socket.AF_INET6, ("::", int(port))
        return socket.AF_INET, ("0.0.0.0", int(port))
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    return family, (host, int(port))
