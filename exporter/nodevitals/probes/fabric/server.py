"""The agent's side of the HTTPS conversation: who asks, may they, and what to answer."""

from __future__ import annotations

import hmac
import http.server
from http import HTTPStatus
from typing import Any, Protocol

import msgspec

from nodevitals.connections import CappedServer
from nodevitals.probes.fabric.protocol import MAX_BODY_BYTES, PATH, Closed, Open, Opened, Refused
from nodevitals.probes.fabric.secrets import Secrets


class Station(Protocol):
    """What the server asks of the rest."""

    def open(self, request: Open) -> Opened | Refused:
        """Start the server side of a test."""

    def close(self, identity: str) -> Closed:
        """End it."""


class Handler(http.server.BaseHTTPRequestHandler):
    """One connection, one request."""

    server: Server
    protocol_version = "HTTP/1.0"  # what a refused request still brings is never read
    wbufsize = -1
    error_message_format = "%(code)d %(message)s\n"
    error_content_type = "text/plain; charset=utf-8"

    def version_string(self) -> str:
        """Nobody's business."""
        return "nodevitals"

    def setup(self) -> None:
        """The handshake runs here, off the accept loop."""
        record = self.server.record_of(self.request)
        self.request = self.server.secrets.server_context.wrap_socket(
            self.request, server_side=True, do_handshake_on_connect=False
        )
        record.socket = self.request
        self.request.do_handshake()
        super().setup()

    def do_POST(self) -> None:
        """Open a test."""
        if not self._is_known():
            return
        if self.path != PATH:
            self.send_error(HTTPStatus.NOT_FOUND)
            return
        length = self.headers.get("Content-Length", "")
        if not length.isdecimal() or int(length) > MAX_BODY_BYTES:
            self.send_error(HTTPStatus.REQUEST_ENTITY_TOO_LARGE)
            return
        try:
            request = msgspec.json.decode(self.rfile.read(int(length)), type=Open)
        except msgspec.MsgspecError:
            self.send_error(HTTPStatus.BAD_REQUEST)
            return
        answer = self.server.station.open(request)
        self._answer(answer, HTTPStatus.OK if isinstance(answer, Opened) else HTTPStatus.CONFLICT)

    def do_DELETE(self) -> None:
        """Close a test."""
        if not self._is_known():
            return
        if self.path.startswith(f"{PATH}/"):
            self._answer(self.server.station.close(self.path[len(PATH) + 1 :]), HTTPStatus.OK)
        else:
            self.send_error(HTTPStatus.NOT_FOUND)

    def _is_known(self) -> bool:
        """Whether the token is ours; who has none learns nothing else, either."""
        given = self.headers.get("Authorization", "").encode()
        if hmac.compare_digest(given, f"Bearer {self.server.secrets.token}".encode()):
            return True
        self.send_error(HTTPStatus.UNAUTHORIZED)
        return False

    def _answer(self, body: msgspec.Struct, status: HTTPStatus) -> None:
        data = msgspec.json.encode(body)
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_: Any) -> None:
        """Say nothing: whoever knocks must not fill the log."""


class Server(CappedServer):
    """Listens for peers."""

    def __init__(self, listen_address: str, secrets: Secrets, station: Station) -> None:
        self.secrets = secrets
        self.station = station
        super().__init__(listen_address, Handler)
