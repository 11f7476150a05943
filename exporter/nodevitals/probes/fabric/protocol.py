"""The protocol between two agents: JSON over HTTPS, and its client.

The source opens a test on the target (`POST /fabric/v1/tests`), runs its client, and closes the
test (`DELETE /fabric/v1/tests/ID`). A response may get lost, so opening twice with one id opens
once. Both present certificates. All received data is bounded, because either side may be hostile.
"""

from __future__ import annotations

import contextlib
import http.client
import socket
import ssl
import threading
import time
from http import HTTPStatus
from typing import Annotated, Literal, TypeVar

import msgspec

from nodevitals.probes.common.addresses import TcpPort, is_address, resolve
from nodevitals.probes.fabric.secrets import Secrets

PATH = "/fabric/v1/tests"
MAX_BODY_BYTES = 4096
CONNECT_SECONDS = 3.0

RefusalKind = Literal["busy", "plan_differs", "test_differs", "failed"]
Word = Annotated[str, msgspec.Meta(min_length=1, max_length=512)]


class OpenRequest(msgspec.Struct, frozen=True, kw_only=True):
    """The source requests the server side of a test."""

    id: Annotated[str, msgspec.Meta(min_length=1, max_length=64)]
    source: Word
    slot: Annotated[int, msgspec.Meta(ge=0, le=1 << 53)]
    test: Word
    order: Annotated[str, msgspec.Meta(max_length=64)] = ""
    """Identity of the hub's order that the test belongs to; '' for a planned test."""


class Opened(msgspec.Struct, frozen=True, kw_only=True):
    """The server side is running: the tool listens on this port."""

    port: TcpPort
    address: Annotated[str, msgspec.Meta(max_length=64)] = ""
    """For iperf3, the address of the test's device; '' for the name on the lists."""


class Refused(msgspec.Struct, frozen=True, kw_only=True):
    """No server side is running. `failed` has a reason of report.py, `busy` a reason of the
    gate.
    """

    refusal: RefusalKind
    reason: str = ""
    message: str = ""


class Closed(msgspec.Struct, frozen=True, kw_only=True):
    """The server side is closed. `ended` is why it had ended before: a reason of the gate,
    `timeout`, or '' if it had not.
    """

    ended: str = ""


class TransportError(Exception):
    """A request failed: `unreachable`, `timeout`, or `harness` for a wrong response. If
    `connected`, the peer may have received the request.
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


Received = TypeVar("Received")


def parse(data: bytes, kind: type[Received]) -> Received:
    """A message of this type. Raises ValueError with the problem in one line."""
    try:
        return msgspec.json.decode(data, type=kind)
    except msgspec.MsgspecError as error:  # no ValueError in msgspec 0.20
        raise ValueError(str(error)) from None
    except RecursionError:
        raise ValueError("nested too deeply") from None


class FabricClient:
    """Sends requests to peers, with the token and the certificate of this node."""

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
        """A connection, before its handshake. Raises OSError."""
        sock = _connection(host, port)
        return self._secrets.client_context.wrap_socket(
            sock, server_hostname=host, do_handshake_on_connect=False
        )

    def _request(
        self, host: str, port: int, method: str, path: str, body: bytes, seconds: float
    ) -> tuple[int, bytes]:
        connection = http.client.HTTPConnection(
            "peer"
        )  # the Host header; names differ between lists
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
            with connection.getresponse() as response:
                data = response.read(MAX_BODY_BYTES)
        except TimeoutError:
            if connection.sock is None:
                text = f"{host}: no connection in time"
                raise TransportError("unreachable", text, connected) from None
            raise TransportError("timeout", f"{host}: no response in time", connected) from None
        except (ssl.SSLEOFError, ssl.SSLZeroReturnError):  # a forwarder without a server behind it
            raise TransportError("unreachable", f"{host}: connection closed", connected) from None
        except ssl.SSLError as error:
            raise TransportError("harness", f"{host}: TLS: {error.reason}", connected) from None
        except OSError as error:
            text = f"{host}: {error.strerror or error}"
            raise TransportError("unreachable", text, connected) from None
        except (http.client.HTTPException, ValueError) as error:
            raise TransportError("harness", f"{host}: {type(error).__name__}", connected) from None
        finally:
            if connection.sock is not None:
                cut.cancel()
            connection.close()
        if response.status in (HTTPStatus.OK, HTTPStatus.CONFLICT):
            return response.status, data
        raise TransportError("harness", f"{host}: HTTP {response.status} {response.reason}")


def _connection(host: str, port: int) -> socket.socket:
    """A connection to the first address of the host that accepts it. Raises OSError, also if there
    is no address: a list may contain an impossible name.
    """
    failure = OSError("the name service returned no address")
    for address in _addresses(host):
        try:
            return socket.create_connection((address, port), CONNECT_SECONDS)
        except OSError as error:
            failure = error
    raise failure


def _addresses(host: str) -> tuple[str, ...]:
    if is_address(host):
        return (host,)
    return resolve([host], time.monotonic() + CONNECT_SECONDS).get(host, ())


def _cut(sock: ssl.SSLSocket) -> None:
    """End a connection whose data arrives too slowly: each read may be in time, but never end."""
    with contextlib.suppress(OSError):
        socket.socket.shutdown(sock, socket.SHUT_RDWR)


def _decoded(data: bytes, kind: type[Received]) -> Received:
    try:
        return parse(data, kind)
    except ValueError as error:
        raise TransportError("harness", f"unexpected response: {error}") from None
