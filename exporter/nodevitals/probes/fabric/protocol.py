"""The protocol between two agents: JSON over HTTPS, and its client.

The source opens a test on the target (`POST /fabric/v1/tests`), runs its client, and closes the
test (`DELETE /fabric/v1/tests/ID`). Opening twice with one id opens once: a response may get lost.
"""

from __future__ import annotations

import contextlib
import http.client
import socket
import ssl
import threading
from http import HTTPStatus
from typing import Literal, TypeVar

import msgspec

from nodevitals.probes.fabric.secrets import Secrets

PATH = "/fabric/v1/tests"
MAX_BODY_BYTES = 4096
CONNECT_SECONDS = 3.0

RefusalKind = Literal["busy", "plan_differs", "test_differs", "failed"]


class OpenRequest(msgspec.Struct, frozen=True, kw_only=True):
    """The source requests the server side of a test."""

    id: str
    source: str
    slot: int
    test: str


class Opened(msgspec.Struct, frozen=True, kw_only=True):
    """The server side is running: the tool listens on this port."""

    port: int


class Refused(msgspec.Struct, frozen=True, kw_only=True):
    """No server side is running. `failed` has a reason of report.py, `busy` one of the gate."""

    refusal: RefusalKind
    reason: str = ""
    message: str = ""


class Closed(msgspec.Struct, frozen=True, kw_only=True):
    """The server side is closed. `ended` is why it had ended before: '' where it had not, else a
    reason of the gate or `timeout`.
    """

    ended: str = ""


class TransportError(Exception):
    """A request failed: `unreachable`, `timeout`, or `harness` for a wrong response. Where
    `connected`, the peer may have received the request all the same.
    """

    def __init__(
        self,
        reason: Literal["unreachable", "timeout", "harness"],
        message: str,
        connected: bool = True,
    ) -> None:
        super().__init__(message)
        self.reason = reason
        self.connected = connected


Response = TypeVar("Response")


class FabricClient:
    """Sends requests to peers, with the token."""

    def __init__(self, secrets: Secrets) -> None:
        self._secrets = secrets

    def open(self, host: str, port: int, body: OpenRequest, seconds: float) -> Opened | Refused:
        """Open a test; raises TransportError."""
        status, data = self._request(host, port, "POST", PATH, msgspec.json.encode(body), seconds)
        if status == HTTPStatus.OK:
            return _decoded(data, Opened)
        return _decoded(data, Refused)

    def close(self, host: str, port: int, identity: str, seconds: float) -> Closed:
        """Close a test; raises TransportError."""
        _, data = self._request(host, port, "DELETE", f"{PATH}/{identity}", b"", seconds)
        return _decoded(data, Closed)

    def _connected(self, host: str, port: int) -> ssl.SSLSocket:
        """A connection, before its handshake."""
        sock = socket.create_connection((host, port), CONNECT_SECONDS)
        return self._secrets.client_context.wrap_socket(
            sock, server_hostname=host, do_handshake_on_connect=False
        )

    def _request(
        self, host: str, port: int, method: str, path: str, body: bytes, seconds: float
    ) -> tuple[int, bytes]:
        connection = http.client.HTTPConnection(host, port)
        connected = False
        try:
            connection.sock = self._connected(host, port)
            cut = threading.Timer(CONNECT_SECONDS + seconds, _cut, [connection.sock])
            cut.start()
            connection.sock.do_handshake()
            connected = True
            connection.sock.settimeout(seconds)
            headers = {"Authorization": f"Bearer {self._secrets.token}", "Connection": "close"}
            connection.request(method, path, body, headers)
            response = connection.getresponse()
            data = response.read(MAX_BODY_BYTES)
        except TimeoutError:
            raise TransportError("timeout", f"{host}: no response in time", connected) from None
        except (ssl.SSLEOFError, ssl.SSLZeroReturnError):  # a forwarder without a server behind it
            raise TransportError("unreachable", f"{host}: connection closed", connected) from None
        except ssl.SSLError as error:
            raise TransportError("harness", f"{host}: TLS: {error.reason}", connected) from None
        except OSError as error:
            text = f"{host}: {error.strerror or error}"
            raise TransportError("unreachable", text, connected) from None
        except http.client.HTTPException as error:
            raise TransportError("harness", f"{host}: {type(error).__name__}") from None
        finally:
            if connection.sock is not None:
                cut.cancel()
            connection.close()
        if response.status in (HTTPStatus.OK, HTTPStatus.CONFLICT):
            return response.status, data
        raise TransportError("harness", f"{host}: HTTP {response.status} {response.reason}")


def _cut(sock: ssl.SSLSocket) -> None:
    """End a connection on which data trickles: each read would be in time, and none the last."""
    with contextlib.suppress(OSError):
        socket.socket.shutdown(sock, socket.SHUT_RDWR)


def _decoded(data: bytes, kind: type[Response]) -> Response:
    try:
        return msgspec.json.decode(data, type=kind)
    except msgspec.MsgspecError as error:
        raise TransportError("harness", f"unexpected response: {error}") from None
