"""The HTTPS server for peers: authenticates requests and passes them to the server side.

A client needs a certificate of the cluster's authority before the first byte of its request is
read, then the token, and to open a test a certificate of the node that it names as the source.
"""

from __future__ import annotations

import hmac
import http.server
import io
import re
from http import HTTPStatus
from typing import Any

import msgspec

from nodevitals.connections import RESPONSE_SECONDS, CappedServer
from nodevitals.probes.fabric.protocol import MAX_BODY_BYTES, PATH, Opened, OpenRequest, parse
from nodevitals.probes.fabric.secrets import Secrets, is_issued_for
from nodevitals.probes.fabric.server_side import OPEN_SECONDS, ServerSide

# A peer's request has some 300 bytes. A connection costs its thread's stack, TLS, and this.
MAX_HEAD_BYTES = 8 * 1024
# A node has one partner in a slot; connections beyond these close the oldest unfinished one.
MAX_PEER_CONNECTIONS = 32
_LENGTH = re.compile(r"[0-9]{1,4}")


class _HeadTooLargeError(Exception):
    pass


class _BoundedReader:
    """The stream of one request: a limit on the bytes of its head, and on those of its body."""

    def __init__(self, stream: io.BufferedIOBase) -> None:
        self._stream = stream
        self._left = MAX_HEAD_BYTES

    def readline(self, _limit: int = -1) -> bytes:
        """A line of the head, within the rest of the limit."""
        line = self._stream.readline(self._left + 1)
        self._left -= len(line)
        if self._left < 0:
            raise _HeadTooLargeError
        return line

    def body(self, size: int) -> bytes:
        """The body."""
        return self._stream.read(min(size, MAX_BODY_BYTES))

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
        """The Server header: no version of ours or of Python's."""
        return "nodevitals"

    def setup(self) -> None:
        """Shake hands here, in the connection's thread, not in the accept loop."""
        self.record = self.server.record_of(self.request)
        self.request = self.server.secrets.server_context.wrap_socket(
            self.request, server_side=True, do_handshake_on_connect=False
        )
        self.record.socket = self.request
        self.request.do_handshake()
        super().setup()
        self.stream = _BoundedReader(self.rfile)
        self.rfile = self.stream  # type: ignore[assignment]

    def handle_one_request(self) -> None:
        """Handle the request; the size of its head is limited."""
        try:
            super().handle_one_request()
        except _HeadTooLargeError:
            self._refuse(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, f"over {MAX_HEAD_BYTES} bytes")

    def parse_request(self) -> bool:
        """Parse the head. A blank line is refused here; the base class would not reply to it."""
        if not self.raw_requestline.decode("latin-1").strip():
            self._refuse(HTTPStatus.BAD_REQUEST, "no request line")
            return False
        return super().parse_request()

    def do_POST(self) -> None:
        """Open a test."""
        if not self._is_authorized():
            return
        if self.path != PATH:
            self.send_error(HTTPStatus.NOT_FOUND)
            return
        lengths = self.headers.get_all("Content-Length", [])
        if len(lengths) != 1 or not _LENGTH.fullmatch(lengths[0].strip()):
            text = "one Content-Length of at most four digits is needed"
            self.send_error(HTTPStatus.LENGTH_REQUIRED, explain=text)
        elif int(lengths[0]) > MAX_BODY_BYTES:
            text = f"at most {MAX_BODY_BYTES} bytes"
            self.send_error(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, explain=text)
        else:
            self._open(self.stream.body(int(lengths[0])))

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
        """Close a test."""
        if not self._is_authorized():
            return
        if self.path.startswith(f"{PATH}/"):
            closed = self.server.server_side.close(self.path[len(PATH) + 1 :])
            self._respond(closed, HTTPStatus.OK)
        else:
            self.send_error(HTTPStatus.NOT_FOUND)

    def _is_authorized(self) -> bool:
        """Whether the request has the token; without it, a client learns nothing else."""
        given = self.headers.get("Authorization", "").encode()
        if hmac.compare_digest(given, f"Bearer {self.server.secrets.token}".encode()):
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

    def log_message(self, *_: Any) -> None:
        """Log nothing: arbitrary clients must not fill the log."""


class FabricServer(CappedServer):
    """Listens for peers."""

    max_connections = MAX_PEER_CONNECTIONS

    def __init__(self, listen_address: str, secrets: Secrets, server_side: ServerSide) -> None:
        self.secrets = secrets
        self.server_side = server_side
        super().__init__(listen_address, FabricHandler)
