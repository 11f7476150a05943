"""Unary calls of gRPC over HTTP/2 on a Unix socket, without TLS and without compression.

In: a method and the bytes of a message. Out: the bytes of the answer, or a GrpcError with gRPC's
status. The C library of grpcio takes 50 ms and 16 MiB per run, h2 2 MiB.
https://github.com/grpc/grpc/blob/master/doc/PROTOCOL-HTTP2.md
"""

from __future__ import annotations

import contextlib
import socket
import time
from urllib.parse import unquote

from h2 import events
from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.errors import ErrorCodes
from h2.exceptions import H2Error
from h2.settings import SettingCodes, Settings

CODES = (
    *("OK", "CANCELLED", "UNKNOWN", "INVALID_ARGUMENT", "DEADLINE_EXCEEDED", "NOT_FOUND"),
    *("ALREADY_EXISTS", "PERMISSION_DENIED", "RESOURCE_EXHAUSTED", "FAILED_PRECONDITION"),
    *("ABORTED", "OUT_OF_RANGE", "UNIMPLEMENTED", "INTERNAL", "UNAVAILABLE", "DATA_LOSS"),
    "UNAUTHENTICATED",
)
_PIECE_BYTES = 65536
_PREFIX_BYTES = 5
# Errors for bytes that are not HTTP/2; UnicodeDecodeError is a ValueError.
_BROKEN = (H2Error, ValueError)
# Server push is off: a kubelet pushes nothing.
_SETTINGS = {SettingCodes.ENABLE_PUSH: 0}
_CLOSED = (BrokenPipeError, ConnectionResetError)


class GrpcError(Exception):
    """A call that failed: the name of its status, and the server's message."""

    def __init__(self, code: str, details: str) -> None:
        super().__init__(f"{code}: {details}")
        self.code = code
        self.details = details


class Answer:
    """The part of an answer that has arrived."""

    def __init__(self) -> None:
        self.headers: dict[str, str] = {}
        self.body = bytearray()
        self.ended = False


class Connection:
    """One connection. Calls come one after the other, and all end by the same deadline."""

    def __init__(self, path: str, deadline: float, max_bytes: int) -> None:
        """`deadline` by the monotonic clock; no answer is longer than `max_bytes`."""
        self._path = path
        self._deadline = deadline
        self._max_bytes = max_bytes
        self._socket: socket.socket | None = None
        self._http2 = H2Connection(H2Configuration(header_encoding="utf-8"))
        self._http2.local_settings = Settings(client=True, initial_values=_SETTINGS)

    def close(self) -> None:
        """Close the connection."""
        if self._socket is not None:
            self._socket.close()

    def call(self, method: str, message: bytes) -> bytes:
        """The answer to one message. Raises GrpcError."""
        try:
            answer = self._receive(self._send(method, message))
        except TimeoutError:
            raise GrpcError("DEADLINE_EXCEEDED", "no answer in time") from None
        except _CLOSED:
            raise GrpcError("UNAVAILABLE", "the connection was closed") from None
        except OSError as error:
            raise GrpcError("UNAVAILABLE", error.strerror or str(error)) from None
        except _BROKEN as error:
            raise GrpcError("INTERNAL", f"no HTTP/2: {error}") from None
        return _message(answer)

    def _send(self, method: str, message: bytes) -> int:
        """Send a request. Returns the number of its stream."""
        if self._socket is None:
            self._connect()
        headers = [
            *((":method", "POST"), (":scheme", "http"), (":path", method)),
            *((":authority", "localhost"), ("te", "trailers")),
            ("content-type", "application/grpc"),
            ("grpc-timeout", f"{max(1, int(self._left() * 1000))}m"),
            ("user-agent", "nodevitals"),
        ]
        stream = self._http2.get_next_available_stream_id()
        self._http2.send_headers(stream, headers)
        body = b"\0" + len(message).to_bytes(4, "big") + message
        self._http2.send_data(stream, body, end_stream=True)
        self._flush()
        return stream

    def _connect(self) -> None:
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._socket.settimeout(self._left())
        self._socket.connect(self._path)
        self._http2.initiate_connection()

    def _left(self) -> float:
        left = self._deadline - time.monotonic()
        if left <= 0:
            raise TimeoutError
        return left

    def _flush(self) -> None:
        assert self._socket is not None
        self._socket.settimeout(self._left())
        # A server may have answered before it closed the connection: so its answer is read.
        with contextlib.suppress(*_CLOSED):
            self._socket.sendall(self._http2.data_to_send())

    def _receive(self, stream: int) -> Answer:
        assert self._socket is not None
        answer = Answer()
        while not answer.ended:
            self._socket.settimeout(self._left())
            data = self._socket.recv(_PIECE_BYTES)
            if not data:
                raise ConnectionResetError
            for event in self._http2.receive_data(data):
                self._take(event, answer, stream)
            if len(answer.body) > self._max_bytes + _PREFIX_BYTES:
                text = f"an answer of over {self._max_bytes} bytes"
                raise GrpcError("RESOURCE_EXHAUSTED", text)
            self._flush()
        return answer

    def _take(self, event: events.Event, answer: Answer, stream: int) -> None:
        """Add an event to the answer. Raises GrpcError where the server ended it early."""
        if isinstance(event, events.ConnectionTerminated) and not answer.ended:
            raise GrpcError("UNAVAILABLE", "the server ended the connection")
        if getattr(event, "stream_id", None) != stream:
            return
        if isinstance(event, (events.ResponseReceived, events.TrailersReceived)):
            answer.headers.update((str(name), str(value)) for name, value in event.headers)
        elif isinstance(event, events.DataReceived):
            answer.body += event.data
            self._http2.acknowledge_received_data(event.flow_controlled_length, stream)
        elif isinstance(event, events.StreamEnded):
            answer.ended = True
        elif isinstance(event, events.StreamReset) and not answer.ended:
            # grpc-go sends CANCEL at its own deadline.
            code = "CANCELLED" if event.error_code == ErrorCodes.CANCEL else "UNAVAILABLE"
            number = int(event.error_code or 0)
            raise GrpcError(code, f"the server ended the stream: {number}")


def _message(answer: Answer) -> bytes:
    """The only message of an answer. Raises GrpcError."""
    headers, body = answer.headers, bytes(answer.body)
    number = headers.get("grpc-status", "")
    if not (number.isascii() and number.isdigit()):
        raise GrpcError("UNKNOWN", f"no gRPC: HTTP status {headers.get(':status')!r:.20}")
    code = CODES[int(number)] if int(number) < len(CODES) else "UNKNOWN"
    if code != "OK":
        raise GrpcError(code, unquote(headers.get("grpc-message", "")))
    length = int.from_bytes(body[1:_PREFIX_BYTES], "big")
    if len(body) < _PREFIX_BYTES or body[0] or len(body) != _PREFIX_BYTES + length:
        raise GrpcError("INTERNAL", f"not one plain message, in {len(body)} bytes")
    return body[_PREFIX_BYTES:]
