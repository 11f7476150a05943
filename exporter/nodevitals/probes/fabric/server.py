"""The HTTPS server for peers and the hub: authenticates requests and passes them on.

A client needs a certificate of the cluster's authority before the first byte of its request is
read, then the token, and to open a test a certificate of the node that it names as the source. The
hub has a token of its own, and a certificate with one of its names.
"""

from __future__ import annotations

import contextlib
import hmac
import http.server
import io
import re
import threading
from collections.abc import Iterator, Sequence
from http import HTTPStatus

import msgspec

from nodevitals.connections import RESPONSE_SECONDS, CappedServer
from nodevitals.probes.fabric import order_book
from nodevitals.probes.fabric.leases import LEASE_PATH, REPLY_SECONDS, LeaseMailbox
from nodevitals.probes.fabric.order_book import OrderBook
from nodevitals.probes.fabric.orders import (
    MAX_ORDER_BYTES,
    MAX_WAIT_SECONDS,
    ORDERS_PATH,
    OrderRefused,
)
from nodevitals.probes.fabric.protocol import (
    MAX_BODY_BYTES,
    PATH,
    Closed,
    Opened,
    OpenRequest,
    parse,
)
from nodevitals.probes.fabric.secrets import HubToken, Secrets, has_name, is_issued_for
from nodevitals.probes.fabric.server_side import OPEN_SECONDS, ServerSide

# A peer's request has some 300 bytes. A connection costs a thread's stack, TLS, and this buffer.
MAX_HEAD_BYTES = 8 * 1024

# A node has one partner in a slot; connections beyond these close the oldest unfinished one.
MAX_PEER_CONNECTIONS = 32
# Number of the hub's requests that may wait at a time; others get the state at once.
MAX_WAITS = 8
_LENGTH = re.compile(r"[0-9]{1,5}")


class HeadTooLargeError(Exception):
    """The head of a request is over the limit."""


class BoundedReader:
    """The stream of one request, with a limit on its head and on its body."""

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


class FabricHandler(http.server.BaseHTTPRequestHandler):
    """One connection, one request."""

    server: FabricServer
    raw_requestline: bytes
    protocol_version = "HTTP/1.0"  # the rest of a refused request is never read
    default_request_version = "HTTP/1.0"  # a malformed request gets a whole response, too
    wbufsize = -1
    error_message_format = "%(code)d %(message)s: %(explain)s\n"
    error_content_type = "text/plain; charset=utf-8"

    def version_string(self) -> str:
        """The Server header, without versions of nodevitals and Python."""
        return "nodevitals"

    def setup(self) -> None:
        """Do the TLS handshake here, in the connection's thread, not in the accept loop."""
        self.record = self.server.record_of(self.request)
        self.request = self.server.secrets.server_context.wrap_socket(
            self.request, server_side=True, do_handshake_on_connect=False
        )
        self.record.socket = self.request
        self.request.do_handshake()
        super().setup()
        self.stream = BoundedReader(self.rfile)
        self.rfile = self.stream  # type: ignore[assignment]

    def handle_one_request(self) -> None:
        """Handle the request; the size of its head is limited."""
        try:
            super().handle_one_request()
        except HeadTooLargeError:
            self._refuse(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, f"over {MAX_HEAD_BYTES} bytes")

    def parse_request(self) -> bool:
        """Parse the head. A blank line is refused here; the base class would not reply to it."""
        if not self.raw_requestline.decode("latin-1").strip():
            self._refuse(HTTPStatus.BAD_REQUEST, "no request line")
            return False
        return super().parse_request()

    def do_POST(self) -> None:
        """Open a test."""
        if not self._has_token(self.server.secrets.token):
            return
        if self.path != PATH:
            self.send_error(HTTPStatus.NOT_FOUND)
            return
        body = self._body(MAX_BODY_BYTES)
        if body is not None:
            self._open(body)

    def do_PUT(self) -> None:
        """Accept an order of the hub, or a lease."""
        if self.path == LEASE_PATH:
            self._put_lease()
            return
        order = self._order()
        body = self._body(MAX_ORDER_BYTES) if order else None
        if order and body is not None:
            status, message = order_book.put(*order, body)
            self._respond(message, status)

    def do_GET(self) -> None:
        """Respond with the state of an order."""
        order = self._order()
        if order is None:
            return
        orders, path = order
        with self.server.wait_place(path.wait_seconds) as seconds:
            path.wait_seconds = seconds
            if seconds:
                self.record.completed = True  # not closed to make room while it waits
                self.record.expect(MAX_WAIT_SECONDS + RESPONSE_SECONDS)
            status, message = order_book.get(orders, path)
        self._respond(message, status)

    def _put_lease(self) -> None:
        """Pass a lease on to the agent."""
        body = self._body(MAX_BODY_BYTES) if self._is_hub() else None
        if body is None:
            return
        with self.server.wait_place(REPLY_SECONDS) as seconds:
            self.record.completed = True  # not closed to make room while it waits
            self.record.expect(REPLY_SECONDS + RESPONSE_SECONDS)
            status, message = self.server.leases.respond(body, seconds)
        self._respond(message, status)

    def _order(self) -> tuple[OrderBook, order_book.OrderPath] | None:
        """The orders and the path of the hub's request; None if it was refused."""
        orders = self.server.orders
        if not self._is_hub() or orders is None:
            return None
        try:
            return orders, order_book.OrderPath(self.path)
        except ValueError as error:
            self.send_error(HTTPStatus.NOT_FOUND, explain=str(error))
            return None

    def _is_hub(self) -> bool:
        """Whether the hub sent this request, by its token and its name; if not, refuse it."""
        hub = self.server.hub_token
        known = self.path == LEASE_PATH or self.path.startswith(f"{ORDERS_PATH}/")
        if hub is None or self.server.orders is None or not known:
            if self._has_token(self.server.secrets.token):
                self.send_error(HTTPStatus.NOT_FOUND)
            return False
        if not self._has_token(hub.token):
            return False
        if not has_name(self.request.getpeercert() or {}, self.server.hub_names):
            text = "the client's certificate has none of the names of probes.fabric.hub.names"
            message = OrderRefused(refusal="forbidden", message=text)
            self._respond(message, HTTPStatus.FORBIDDEN)
            return False
        return True

    def _body(self, limit: int) -> bytes | None:
        """The body of the request; None if it was refused."""
        lengths = self.headers.get_all("Content-Length", [])
        if len(lengths) != 1 or not _LENGTH.fullmatch(lengths[0].strip()):
            text = "one Content-Length of at most five digits is needed"
            self.send_error(HTTPStatus.LENGTH_REQUIRED, explain=text)
        elif int(lengths[0]) > limit:
            self.send_error(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, explain=f"at most {limit} bytes")
        else:
            return self.stream.body(int(lengths[0]))
        return None

    def _open(self, body: bytes) -> None:
        try:
            request = parse(body, OpenRequest)
        except ValueError as error:
            self.send_error(HTTPStatus.BAD_REQUEST, explain=str(error))
            return
        if not is_issued_for(self.request.getpeercert() or {}, request.source):
            text = "the client's certificate is not that of the source"
            self.send_error(HTTPStatus.FORBIDDEN, explain=text)
            return
        self.record.completed = True  # not closed to make room while the tool starts
        self.record.expect(OPEN_SECONDS + RESPONSE_SECONDS)
        response = self.server.server_side.open(request)
        status = HTTPStatus.OK if isinstance(response, Opened) else HTTPStatus.CONFLICT
        self._respond(response, status)

    def do_DELETE(self) -> None:
        """Close a test, or end an order or a lease."""
        if self.path == LEASE_PATH:
            if self._is_hub():
                self._respond(self.server.leases.put((), 0.0, 0.0), HTTPStatus.OK)
            return
        if not self.path.startswith(f"{PATH}/"):
            order = self._order()
            if order is not None:
                self.record.completed = True  # not closed to make room while the tool ends
                status, message = order_book.delete(*order)
                self._respond(message, status)
        elif self._has_token(self.server.secrets.token):
            identity = self.path[len(PATH) + 1 :]
            self._respond(self._closed(identity), HTTPStatus.OK)

    def _closed(self, identity: str) -> Closed:
        """Close a test, or an order by its identity: its source has run all of its tests."""
        certificate = self.request.getpeercert() or {}
        orders = self.server.orders
        if orders is not None and orders.close(
            identity, lambda source: is_issued_for(certificate, source)
        ):
            return Closed()
        return self.server.server_side.close(identity)

    def _has_token(self, token: str) -> bool:
        """Whether the request has this token. Without it, the client gets no further
        information.
        """
        given = self.headers.get("Authorization", "").encode()
        if token and hmac.compare_digest(given, f"Bearer {token}".encode()):
            return True
        self.send_error(HTTPStatus.UNAUTHORIZED)
        return False

    def _respond(self, body: msgspec.Struct, status: HTTPStatus) -> None:
        data = msgspec.json.encode(body)
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def _refuse(self, status: HTTPStatus, text: str) -> None:
        """Respond to a request whose head could not be parsed."""
        self.requestline, self.command, self.request_version = "", "", self.protocol_version
        self.close_connection = True
        self.send_error(status, explain=text)

    def log_message(self, *_: object) -> None:
        """Log nothing: arbitrary clients must not fill the log."""


class FabricServer(CappedServer):
    """Listens for peers and the hub."""

    max_connections = MAX_PEER_CONNECTIONS

    def __init__(
        self,
        listen_address: str,
        secrets: Secrets,
        server_side: ServerSide,
        orders: OrderBook | None = None,
        hub_token: HubToken | None = None,
        hub_names: Sequence[str] = (),
        leases: LeaseMailbox | None = None,
    ) -> None:
        self.secrets = secrets
        self.server_side = server_side
        self.orders = orders
        self.hub_token = hub_token
        self.hub_names = hub_names
        self.leases = leases or LeaseMailbox()
        self._waits = threading.Semaphore(MAX_WAITS)
        super().__init__(listen_address, FabricHandler)

    @contextlib.contextmanager
    def wait_place(self, seconds: float) -> Iterator[float]:
        """The seconds that a request may wait: as requested, or 0 if enough requests wait
        already.
        """
        if not seconds or not self._waits.acquire(blocking=False):
            yield 0.0
            return
        try:
            yield seconds
        finally:
            self._waits.release()
