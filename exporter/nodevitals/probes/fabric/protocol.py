"""What two agents say to each other over HTTPS, as JSON.

The source opens a test on the target (`POST /fabric/v1/tests`), runs its client, and closes it
(`DELETE /fabric/v1/tests/ID`). Opening twice with one id opens once: an answer may get lost.
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

Refusal = Literal["busy", "plan_differs", "test_differs", "failed"]


class Open(msgspec.Struct, frozen=True, kw_only=True):
    """The source asks for the server side of one of its tests."""

    id: str
    source: str
    slot: int
    test: str


class Opened(msgspec.Struct, frozen=True, kw_only=True):
    """The tool listens on this port."""

    port: int


class Refused(msgspec.Struct, frozen=True, kw_only=True):
    """Not now, or not at all. `failed` has a reason of fabric/report.py."""

    refusal: Refusal
    reason: str = ""
    message: str = ""


class Closed(msgspec.Struct, frozen=True, kw_only=True):
    """Why the server side ended before it was closed: '' where it did not, else a word of the gate
    or of fabric/report.py.
    """

    ended: str = ""


class TransportError(Exception):
    """The peer could not be asked: `unreachable`, `timeout`, or `harness` for a wrong answer.
    `connected` says that it may have heard us all the same.
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


Answer = TypeVar("Answer")


class Caller:
    """Asks peers, with our token."""

    def __init__(self, secrets: Secrets) -> None:
        self._secrets = secrets

    def open(self, host: str, port: int, body: Open, seconds: float) -> Opened | Refused:
        """Ask for the server side; raises TransportError."""
        status, data = self._ask(host, port, "POST", PATH, msgspec.json.encode(body), seconds)
        if status == HTTPStatus.OK:
            return _decoded(data, Opened)
        return _decoded(data, Refused)

    def close(self, host: str, port: int, identity: str, seconds: float) -> Closed:
        """Say that we are done; raises TransportError."""
        _, data = self._ask(host, port, "DELETE", f"{PATH}/{identity}", b"", seconds)
        return _decoded(data, Closed)

    def _connected(self, host: str, port: int) -> ssl.SSLSocket:
        """A connection before its handshake."""
        sock = socket.create_connection((host, port), CONNECT_SECONDS)
        return self._secrets.client_context.wrap_socket(
            sock, server_hostname=host, do_handshake_on_connect=False
        )

    def _ask(
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
            raise TransportError("timeout", f"{host}: no answer in time", connected) from None
        except (ssl.SSLEOFError, ssl.SSLZeroReturnError):  # nobody is behind what answers
            raise TransportError("unreachable", f"{host}: hung up", connected) from None
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
    """End a conversation that drips: each of its reads would be in time, and none the last."""
    with contextlib.suppress(OSError):
        socket.socket.shutdown(sock, socket.SHUT_RDWR)


def _decoded(data: bytes, kind: type[Answer]) -> Answer:
    try:
        return msgspec.json.decode(data, type=kind)
    except msgspec.MsgspecError as error:
        raise TransportError("harness", f"an answer of another kind: {error}") from None
