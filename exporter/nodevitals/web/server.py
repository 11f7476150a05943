"""The HTTP server for scrapes, based on the standard library's.

In: requests, some of them hostile. Out: response bodies that are already rendered. A scrape
touches no hardware, no disk and no child process. `connections.py` limits the connections.
"""

from __future__ import annotations

import base64
import binascii
import http.server
import logging
import threading
import time
from collections.abc import Callable
from http import HTTPStatus
from typing import Any, Protocol
from urllib.parse import parse_qs, urlsplit

from nodevitals import __version__
from nodevitals.connections import RESPONSE_SECONDS, CappedServer
from nodevitals.document import meant
from nodevitals.exposition import Variant
from nodevitals.web.access import Access
from nodevitals.web.page import HEADERS, Overview, render
from nodevitals.web.passwords import BusyError
from nodevitals.web.request_head import (
    HeadReader,
    HeadTooLargeError,
    accepts_gzip,
    has_body,
    prefers_openmetrics,
    problem_of,
)

# Prometheus closes an idle connection after five minutes.
IDLE_SECONDS = 330.0
# Limit for requests that wait for the result of a reload; each occupies a thread.
MAX_WAITING_RELOADS = 8
RETRY_SECONDS = 1

TEXT = "text/plain; version=0.0.4; charset=utf-8"
OPENMETRICS = "application/openmetrics-text; version=1.0.0; charset=utf-8"

log = logging.getLogger(__name__)


class Backend(Protocol):
    """What the server needs from the agent."""

    def scrape(self, variant: Variant) -> bytes:
        """The body of a scrape."""

    def probe_names(self) -> frozenset[str]:
        """The values that collect[] accepts."""

    def health(self) -> str:
        """'' while the supervisor's loop ticks, otherwise the problem."""

    def readiness(self) -> str:
        """'' once every target has completed a run, otherwise the targets that have not."""

    def overview(self) -> Overview:
        """The content of the page at /."""

    def reload(self) -> str:
        """Reload the configuration; '' or the problems with it."""


class Handler(http.server.BaseHTTPRequestHandler):
    """Handles the requests of one connection, in its own thread."""

    server: Server
    protocol_version = "HTTP/1.1"
    server_version = f"nodevitals/{__version__}"
    disable_nagle_algorithm = True
    wbufsize = -1  # head and body in one segment: separate ones cost a delayed ACK, 40 ms
    error_message_format = "%(code)d %(message)s\n"
    error_content_type = "text/plain; charset=utf-8"

    def version_string(self) -> str:
        """The Server header, without the version of the interpreter."""
        return self.server_version

    def setup(self) -> None:
        """Wrap the socket if TLS is on; the handshake runs here, not in the accept loop."""
        self.record = self.server.record_of(self.request)
        tls = self.server.access.tls
        if tls is not None:
            self.request = tls.wrap_socket(
                self.request, server_side=True, do_handshake_on_connect=False
            )
            self.record.socket = self.request
            self.request.do_handshake()
        super().setup()
        self.head = HeadReader(self.rfile)  # type: ignore[arg-type]
        self.rfile = self.head  # type: ignore[assignment]

    def handle_one_request(self) -> None:
        """Handle one request; the size of its head is limited."""
        self.head.begin()
        try:
            super().handle_one_request()
            self.record.completed = True
            self.record.expect(IDLE_SECONDS)
        except HeadTooLargeError:
            self.close_connection = True
            self.requestline, self.request_version, self.command = "", self.protocol_version, ""
            self.send_error(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE)
        except (BrokenPipeError, ConnectionError, TimeoutError):
            self.close_connection = True

    def parse_request(self) -> bool:
        """Parse the head. A body is not read, so a request with one ends the connection; so does
        HTTP/1.0, whose proxies may pass on a `Connection: keep-alive` that they do not know.
        """
        if not super().parse_request():
            return False
        self.record.expect(RESPONSE_SECONDS)
        problem = problem_of(self.head.lines)
        try:
            self.url = urlsplit(self.path)
        except ValueError:
            problem = problem or "malformed request target"
        if problem:
            self.send_error(HTTPStatus.BAD_REQUEST, problem)
            return False
        options = ",".join(self.headers.get_all("Connection", [])).lower().split(",")
        self.close_connection = (
            self.request_version != self.protocol_version
            or "close" in map(str.strip, options)
            or has_body(self.headers["Content-Length"], self.headers["Transfer-Encoding"])
        )
        return True

    def handle_expect_100(self) -> bool:
        """Ask for no body: the response comes at once."""
        return True

    def do_GET(self) -> None:
        """Handle a request for metrics, the page at /, health or readiness."""
        url = self.url
        routes: dict[str, Callable[[str], None]] = {
            self.server.telemetry_path: self._metrics,
            "/": self._page,
            "/healthz": lambda _: self._status(self.server.agent.health()),
            "/readyz": lambda _: self._status(self.server.agent.readiness()),
        }
        route = routes.get(url.path)
        if url.path not in ("/healthz", "/readyz") and not self._authorized():
            return
        if route is None:
            self._respond(HTTPStatus.NOT_FOUND, b"404 not found\n")
        else:
            route(url.query)

    do_HEAD = do_GET

    def do_POST(self) -> None:
        """Reload the configuration, if --web.enable-lifecycle is set."""
        if not self._authorized():
            return
        if self.url.path != "/-/reload":
            self._respond(HTTPStatus.NOT_FOUND, b"404 not found\n")
        elif not self.server.lifecycle:
            text = b"Lifecycle API is not enabled: start with --web.enable-lifecycle.\n"
            self._respond(HTTPStatus.FORBIDDEN, text)
        elif not self.server.reloads.acquire(blocking=False):
            self._respond_busy(b"Too many requests wait for a reload; try again later.\n")
        else:
            try:
                problem = self.server.agent.reload()
            finally:
                self.server.reloads.release()
            status = HTTPStatus.INTERNAL_SERVER_ERROR if problem else HTTPStatus.OK
            self._respond(status, (problem or "reloaded").encode() + b"\n")

    do_PUT = do_POST

    def _metrics(self, query: str) -> None:
        try:
            fields = parse_qs(query, max_num_fields=100)
        except ValueError:
            self._respond(HTTPStatus.BAD_REQUEST, b"too many parameters\n")
            return
        # `collect`, as service discovery sets it: no label of Prometheus is named collect[].
        listed = ",".join(fields.get("collect", [])).split(",")
        names = [*fields.get("collect[]", []), *filter(None, listed)]
        unknown = sorted(set(names) - self.server.agent.probe_names())
        if unknown:
            known = sorted(self.server.agent.probe_names())
            hint = meant(unknown[0], known)
            text = f"collect[]: unknown probe {unknown[0]!r}; known: {', '.join(known)}{hint}\n"
            self._respond(HTTPStatus.BAD_REQUEST, text.encode())
            return
        variant = Variant(
            openmetrics=prefers_openmetrics(self.headers.get("Accept", "")),
            compressed=accepts_gzip(self.headers.get("Accept-Encoding", "")),
            probes=frozenset(names) if names else None,
        )
        body = self.server.agent.scrape(variant)
        extra = {"Content-Encoding": "gzip"} if variant.compressed else {}
        content_type = OPENMETRICS if variant.openmetrics else TEXT
        self._respond(HTTPStatus.OK, body, content_type, extra)

    def _page(self, _: str) -> None:
        with self.server.rendering:
            now = time.monotonic()
            body = render(self.server.agent.overview(), self.server.telemetry_path, now)
        own = {name.lower() for name in self.server.access.headers}
        extra = {name: value for name, value in HEADERS.items() if name.lower() not in own}
        self._respond(HTTPStatus.OK, body, "text/html; charset=utf-8", extra)

    def _status(self, problem: str) -> None:
        status = HTTPStatus.SERVICE_UNAVAILABLE if problem else HTTPStatus.OK
        self._respond(status, (problem or "ok").encode() + b"\n")

    def _authorized(self) -> bool:
        access = self.server.access
        try:
            if access.open_to_all or self._login_is_valid(access):
                return True
        except BusyError:
            self._respond_busy(b"Too many passwords wait to be checked; try again later.\n")
            return False
        challenge = {"WWW-Authenticate": 'Basic realm="nodevitals", charset="UTF-8"'}
        self._respond(HTTPStatus.UNAUTHORIZED, b"Unauthorized\n", extra=challenge)
        return False

    def _respond_busy(self, text: bytes) -> None:
        """Refuse the request for now, and end the connection, which would occupy a thread."""
        self.close_connection = True
        retry = {"Retry-After": str(RETRY_SECONDS)}
        self._respond(HTTPStatus.SERVICE_UNAVAILABLE, text, extra=retry)

    def _login_is_valid(self, access: Access) -> bool:
        scheme, _, token = self.headers.get("Authorization", "").partition(" ")
        if scheme.lower() != "basic":
            return False
        try:
            user, colon, password = base64.b64decode(token, validate=True).decode().partition(":")
        except (binascii.Error, ValueError):
            return False
        address, is_gone = self.client_address[0], self.record.is_gone
        return bool(colon) and access.passwords.verify(user, password, address, is_gone)

    def _respond(
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
        """Log requests at debug level only: each scrape would be a line."""
        log.debug("%s %s", self.client_address[0], format % args)


class Server(CappedServer):
    """The server of one port, with what its handlers need."""

    def __init__(
        self,
        listen_address: str,
        agent: Backend,
        access: Access,
        telemetry_path: str = "/metrics",
        lifecycle: bool = False,
    ) -> None:
        self.agent = agent
        self.access = access
        self.telemetry_path = telemetry_path
        self.lifecycle = lifecycle
        self.reloads = threading.Semaphore(MAX_WAITING_RELOADS)
        self.rendering = threading.Lock()
        """Of the page: one at a time, or scrapes would wait behind all of them."""
        super().__init__(listen_address, Handler)

    def replace_access(self, access: Access) -> None:
        """Use another access control from now on; verified passwords stay verified."""
        access.passwords.keep_verified(self.access.passwords)
        self.access = access
