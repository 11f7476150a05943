"""gRPC's unary calls over HTTP/2: servers that answer, fail and misbehave, on a real socket.

`testbed.kubelet`, a server of grpcio's, is the one for what a kubelet answers; here are those that
it cannot play.
"""

from __future__ import annotations

import random
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from h2 import events
from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.errors import ErrorCodes

from nodevitals.probes.kubernetes.grpc import CODES, Connection, GrpcError

METHOD = "/v1.PodResourcesLister/List"
MAX_BYTES = 1000
HEADERS = [(":status", "200"), ("content-type", "application/grpc")]
OK = [("grpc-status", "0")]
Serve = Callable[[socket.socket, H2Connection, int], None]


def message(body: bytes) -> bytes:
    return b"\0" + len(body).to_bytes(4, "big") + body


def answer(body: bytes, trailers: list[tuple[str, str]] = OK) -> Serve:
    """A server that sends this and the trailers."""

    def serve(connection: socket.socket, http2: H2Connection, stream: int) -> None:
        http2.send_headers(stream, HEADERS)
        http2.send_data(stream, body)
        http2.send_headers(stream, trailers, end_stream=True)
        connection.sendall(http2.data_to_send())

    return serve


def only_headers(*headers: tuple[str, str]) -> Serve:
    def serve(connection: socket.socket, http2: H2Connection, stream: int) -> None:
        http2.send_headers(stream, list(headers), end_stream=True)
        connection.sendall(http2.data_to_send())

    return serve


def reset(connection: socket.socket, http2: H2Connection, stream: int) -> None:
    http2.reset_stream(stream, ErrorCodes.CANCEL)
    connection.sendall(http2.data_to_send())


def go_away(connection: socket.socket, http2: H2Connection, stream: int) -> None:
    http2.close_connection()
    connection.sendall(http2.data_to_send())


def close(connection: socket.socket, http2: H2Connection, stream: int) -> None:
    connection.close()


def garbage(connection: socket.socket, http2: H2Connection, stream: int) -> None:
    connection.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n" + b"x" * 100)
    connection.shutdown(socket.SHUT_RDWR)


def wrong_frame(connection: socket.socket, http2: H2Connection, stream: int) -> None:
    connection.sendall(http2.data_to_send())
    settings_of_a_stream = b"\0\0\0\4\0\0\0\0\1"
    connection.sendall(settings_of_a_stream)


def no_unicode(connection: socket.socket, http2: H2Connection, stream: int) -> None:
    http2.config.validate_outbound_headers = False
    headers: list[tuple[str | bytes, str | bytes]] = [*HEADERS, ("grpc-status", "2")]
    headers.append((b"grpc-message", b"\xff\xfe"))
    http2.send_headers(stream, headers, end_stream=True)
    connection.sendall(http2.data_to_send())


def pings_without_end(connection: socket.socket, http2: H2Connection, stream: int) -> None:
    with suppress(OSError):
        while True:
            http2.ping(b"12345678")
            connection.sendall(http2.data_to_send())
            time.sleep(0.01)


def nothing(connection: socket.socket, http2: H2Connection, stream: int) -> None:
    with suppress(OSError):
        connection.recv(1)


class Server:
    """Accepts connections, reads a request from each, and then misbehaves as `serve` does."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.serve: Serve = nothing
        self.requests: list[dict[str, str]] = []
        self.received = b""
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(path))
        self._listener.listen()
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                connection = self._listener.accept()[0]
                threading.Thread(target=self._one, args=(connection,), daemon=True).start()

    def _one(self, connection: socket.socket) -> None:
        http2 = H2Connection(H2Configuration(client_side=False, header_encoding="utf-8"))
        http2.initiate_connection()
        with connection, suppress(OSError):
            while data := connection.recv(65536):
                for event in http2.receive_data(data):
                    if isinstance(event, events.RequestReceived):
                        pairs = event.headers
                        self.requests.append({str(name): str(value) for name, value in pairs})
                    elif isinstance(event, events.DataReceived):
                        self.received += event.data
                    elif isinstance(event, events.StreamEnded):
                        self.serve(connection, http2, event.stream_id)
                with suppress(OSError):
                    connection.sendall(http2.data_to_send())


@pytest.fixture
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    found = Server(tmp_path_factory.mktemp("s") / "socket")
    yield found
    found.close()


def call(server: Server, seconds: float = 60.0) -> bytes:
    connection = Connection(str(server.path), time.monotonic() + seconds, MAX_BYTES)
    try:
        return connection.call(METHOD, b"asked")
    finally:
        connection.close()


def test_request_and_answer(server: Server) -> None:
    """The request is what gRPC's protocol demands; two calls share a connection."""
    server.serve = answer(message(b"told"))
    connection = Connection(str(server.path), time.monotonic() + 60, MAX_BYTES)
    assert [connection.call(METHOD, b"asked") for _ in range(2)] == [b"told", b"told"]
    connection.close()
    request = server.requests[0]
    assert request[":method"] == "POST"
    assert request[":path"] == METHOD
    assert request["te"] == "trailers"
    assert request["content-type"] == "application/grpc"
    assert request["grpc-timeout"].endswith("m")
    assert server.received == 2 * message(b"asked")


def test_server_that_closes_after_its_answer_has_answered(server: Server) -> None:
    """The client has still something to send then, which fails at some of the calls."""

    def answer_and_close(connection: socket.socket, http2: H2Connection, stream: int) -> None:
        answer(message(b"told"))(connection, http2, stream)
        connection.shutdown(socket.SHUT_RDWR)

    server.serve = answer_and_close
    assert {call(server) for _ in range(200)} == {b"told"}


def test_longest_answer(server: Server) -> None:
    server.serve = answer(message(b"x" * MAX_BYTES))
    assert call(server) == b"x" * MAX_BYTES


@pytest.mark.parametrize(
    ("serve", "code", "details"),
    [
        (answer(b"", [("grpc-status", "7"), ("grpc-message", "no %41ccess")]), 7, "no Access"),
        (only_headers(*HEADERS, ("grpc-status", "12")), 12, ""),
        (only_headers(*HEADERS, ("grpc-status", "99")), 2, ""),
        (only_headers(*HEADERS, ("grpc-status", "-1")), 2, "no gRPC: HTTP status '200'"),
        (only_headers((":status", "503")), 2, "no gRPC: HTTP status '503'"),
        (answer(b""), 13, "not one plain message, in 0 bytes"),
        (answer(message(b"told")[:-1]), 13, "not one plain message, in 8 bytes"),
        (answer(message(b"a") + message(b"b")), 13, "not one plain message, in 12 bytes"),
        (answer(b"\1" + message(b"packed")[1:]), 13, "not one plain message, in 11 bytes"),
        (answer(message(b"x" * (MAX_BYTES + 1))), 8, "an answer of over 1000 bytes"),
        (reset, 1, "the server ended the stream: 8"),
        (go_away, 14, "the server ended the connection"),
        (close, 14, "the connection was closed"),
        (garbage, 14, "the connection was closed"),  # h2 waits for the end of a frame
        (wrong_frame, 13, "no HTTP/2"),
        (no_unicode, 13, "no HTTP/2"),
    ],
    ids=[
        *("denied", "unimplemented", "unknown-code", "no-code", "http-error", "empty", "cut"),
        *("two", "compressed", "too-long", "reset", "go-away", "closed", "garbage"),
        *("wrong-frame", "no-unicode"),
    ],
)
def test_failure_has_a_status(server: Server, serve: Serve, code: int, details: str) -> None:
    server.serve = serve
    with pytest.raises(GrpcError) as caught:
        call(server)
    assert caught.value.code == CODES[code]
    assert caught.value.details.startswith(details)


def damaged(source: random.Random) -> Serve:
    """A server whose answer has wrong bytes, after which it closes the connection."""

    def serve(connection: socket.socket, http2: H2Connection, stream: int) -> None:
        http2.send_headers(stream, HEADERS)
        http2.send_data(stream, message(bytes(range(100))), pad_length=10)
        http2.send_headers(stream, [*OK, ("a", "b" * 60)], end_stream=True)
        data = bytearray(http2.data_to_send())
        for _ in range(source.randrange(1, 4)):
            data[source.randrange(len(data))] = source.randrange(256)
        connection.sendall(data)
        connection.shutdown(socket.SHUT_RDWR)

    return serve


def test_any_bytes_are_an_answer_or_a_failure_with_a_status(server: Server) -> None:
    server.serve = damaged(random.Random(7))
    failures = set()
    for _ in range(500):
        try:
            call(server)
        except GrpcError as error:
            failures.add(error.code)
    assert failures >= {"INTERNAL", "UNAVAILABLE"}


@pytest.mark.parametrize("serve", [nothing, pings_without_end])
def test_server_that_does_not_answer(server: Server, serve: Serve) -> None:
    server.serve = serve
    with pytest.raises(GrpcError, match="DEADLINE_EXCEEDED: no answer in time"):
        call(server, 0.5)


def test_no_server(tmp_path: Path) -> None:
    connection = Connection(str(tmp_path / "socket"), time.monotonic() + 60, MAX_BYTES)
    with pytest.raises(GrpcError, match="UNAVAILABLE: No such file"):
        connection.call(METHOD, b"")
    connection.close()
