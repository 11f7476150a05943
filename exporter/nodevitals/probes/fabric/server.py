"""The HTTPS server for peers: authenticates requests and passes them to the server side."""

from __future__ import annotations

import hmac
import http.server
from http import HTTPStatus
from typing import Any

import msgspec

from nodevitals.connections import CappedServer
from nodevitals.probes.fabric.protocol import MAX_BODY_BYTES, PATH, Opened, OpenRequest
from nodevitals.probes.fabric.secrets import Secrets
from nodevitals.probes.fabric.server_side import ServerSide


class FabricHandler(http.server.BaseHTTPRequestHandler):
    """One connection, one request."""

    server: FabricServer
    protocol_version = "HTTP/1.0"  # the rest of a refused request is never read
    wbufsize = -1
    error_message_format = "%(code)d %(message)s\n"
    error_content_type = "text/plain; charset=utf-8"

    def version_string(self) -> str:
        """The Server header: no version of ours or of Python's."""
        return "nodevitals"

    def setup(self) -> None:
        """Shake hands here, in the connection's thread, not in the accept loop."""
        record = self.server.record_of(self.request)
        self.request = self.server.secrets.server_context.wrap_socket(
            self.request, server_side=True, do_handshake_on_connect=False
        )
        record.socket = self.request
        self.request.do_handshake()
        super().setup()

    def do_POST(self) -> None:
        """Open a test."""
        if not self._is_authorized():
            return
        if self.path != PATH:
            self.send_error(HTTPStatus.NOT_FOUND)
            return
        length = self.headers.get("Content-Length", "")
        if not length.isdecimal() or int(length) > MAX_BODY_BYTES:
            self.send_error(HTTPStatus.REQUEST_ENTITY_TOO_LARGE)
            return
        try:
            request = msgspec.json.decode(self.rfile.read(int(length)), type=OpenRequest)
        except msgspec.MsgspecError:
            self.send_error(HTTPStatus.BAD_REQUEST)
            return
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

    def log_message(self, *_: Any) -> None:
        """Log nothing: arbitrary clients must not fill the log."""


class FabricServer(CappedServer):
    """Listens for peers."""

    def __init__(self, listen_address: str, secrets: Secrets, server_side: ServerSide) -> None:
        self.secrets = secrets
        self.server_side = server_side
        super().__init__(listen_address, FabricHandler)
