"""A client of HTTP/2 against h2, which knows all of it, and against bytes that are none."""

from __future__ import annotations

import random

import hpack
import pytest
from h2 import events
from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.settings import SettingCodes
from hypothesis import given, settings
from hypothesis import strategies as st

from nodevitals.probes.kubernetes.http2 import ConnectionEndedError, Http2Client, Http2Error

REQUEST = [(":method", "POST"), (":scheme", "http"), (":path", "/a/b"), (":authority", "here")]
STATUS = (":status", "200")
KNOWN_ERRORS = (Http2Error, UnicodeDecodeError, hpack.HPACKError, ConnectionEndedError)
DATA, HEADERS, PRIORITIES, RESET, SETTINGS, PUSH, PING, GOAWAY, WINDOW, CONTINUATION = range(10)
UNKNOWN = 200
END_STREAM, END_HEADERS, PADDED, PRIORITY = 0x1, 0x4, 0x8, 0x20

texts = st.text("abcdefghij-0123456789%~ xyz", min_size=1, max_size=40).map(str.strip)
names = st.text("abcdefghijklmnop-", min_size=1, max_size=20)
header_lists = st.lists(st.tuples(names.filter(lambda n: n != "connection"), texts), max_size=12)


def frame(kind: int, payload: bytes = b"", flags: int = 0, stream: int = 1) -> bytes:
    return (
        len(payload).to_bytes(3, "big") + bytes([kind, flags]) + stream.to_bytes(4, "big") + payload
    )


class Server:
    """h2, in the same process."""

    def __init__(self) -> None:
        self.http2 = H2Connection(H2Configuration(client_side=False, header_encoding="utf-8"))
        self.http2.config.validate_outbound_headers = False
        self.http2.initiate_connection()
        self.requests: list[tuple[list[tuple[str, str]], bytes]] = []

    def receive(self, data: bytes) -> None:
        for event in self.http2.receive_data(data):
            if isinstance(event, events.RequestReceived):
                pairs = [(str(name), str(value)) for name, value in event.headers]
                self.requests.append((pairs, b""))
            elif isinstance(event, events.DataReceived):
                headers, body = self.requests[-1]
                self.requests[-1] = (headers, body + event.data)


def asked() -> tuple[Http2Client, Server]:
    """A client whose first request has arrived at a server."""
    client, server = Http2Client(), Server()
    client.request(REQUEST, b"asked")
    server.receive(client.take_unsent())
    return client, server


def headers_of(pairs: list[tuple[str, str]], flags: int = END_HEADERS, stream: int = 1) -> bytes:
    return frame(HEADERS, hpack.Encoder().encode(pairs), flags, stream)


def answered(data: bytes) -> Http2Client:
    """A client that has asked, and received this."""
    client, _ = asked()
    client.receive(data)
    return client


@settings(deadline=None)
@given(
    st.lists(st.tuples(header_lists, st.binary(max_size=40_000), st.integers(0, 255)), max_size=3),
    st.integers(0, 4096),
    st.integers(1, 5000),
)
def test_answers_arrive_as_h2_sends_them(
    answers: list[tuple[list[tuple[str, str]], bytes, int]], table: int, piece: int
) -> None:
    """In pieces of any size, with padding, for several requests of one connection."""
    client, server = Http2Client(), Server()
    server.http2.update_settings({SettingCodes.HEADER_TABLE_SIZE: table})
    for number, (headers, body, padding) in enumerate(answers):
        client.request(REQUEST, b"asked")
        server.receive(client.take_unsent())
        assert server.requests[-1] == (REQUEST, b"asked")
        stream = 2 * number + 1
        server.http2.send_headers(stream, [STATUS, *headers])
        for start in range(0, len(body), 16_000):
            part = body[start : start + 16_000]
            server.http2.send_data(stream, part, pad_length=padding)
        server.http2.ping(b"12345678")
        server.http2.send_headers(stream, [("grpc-status", "0")], end_stream=True)
        sent = server.http2.data_to_send()
        for start in range(0, len(sent), piece):
            assert not client.answer.ended
            client.receive(sent[start : start + piece])
        assert client.answer.ended
        assert client.answer.headers == {**dict([STATUS, *headers]), "grpc-status": "0"}
        assert client.answer.body == body
        server.receive(client.take_unsent())  # h2 finds nothing wrong with the acknowledgements


def test_answer_whose_headers_come_in_frames_of_all_kinds() -> None:
    block = hpack.Encoder().encode([STATUS, ("a", "b" * 100)])
    first = bytes([3]) + bytes(5) + block[:10] + bytes(3)
    client = answered(
        frame(UNKNOWN, b"x")
        + frame(UNKNOWN, b"x", stream=0)  # as ORIGIN and PRIORITY_UPDATE
        + frame(WINDOW, bytes(4), stream=0)
        + frame(WINDOW, bytes(4))
        + frame(PRIORITIES, bytes(5))
        + frame(HEADERS, first, PADDED | PRIORITY)
        + frame(CONTINUATION, block[10:20])
        + frame(CONTINUATION, block[20:], END_HEADERS)
        + frame(DATA, bytes([2]) + b"answer" + bytes(2), PADDED | END_STREAM)
    )
    assert client.answer.ended
    assert client.answer.headers == {":status": "200", "a": "b" * 100}
    assert client.answer.body == b"answer"


def test_what_belongs_to_another_stream_is_left_out() -> None:
    """But its headers are read: they are in the table that the next ones refer to."""
    encoder = hpack.Encoder()
    first = frame(HEADERS, encoder.encode([("a", "of stream 7")]), END_HEADERS | END_STREAM, 7)
    data = frame(DATA, b"other", END_STREAM, 7) + frame(RESET, bytes(4), stream=7)
    client = answered(first + data)
    assert client.answer.headers == {}
    assert client.answer.body == b""
    assert not client.answer.ended
    assert client.answer.reset is None
    client.receive(frame(HEADERS, encoder.encode([("a", "of stream 7")]), END_HEADERS))
    assert client.answer.headers == {"a": "of stream 7"}


def test_reset_has_its_code() -> None:
    assert answered(frame(RESET, (8).to_bytes(4, "big"))).answer.reset == 8


def test_settings_and_pings_are_acknowledged_once() -> None:
    client = answered(b"")
    client.take_unsent()
    client.receive(frame(SETTINGS, b"\0\1\0\0\0\0", stream=0) + frame(PING, b"12345678", stream=0))
    assert client.take_unsent() == frame(SETTINGS, b"", 1, 0) + frame(PING, b"12345678", 1, 0)
    client.receive(frame(SETTINGS, b"", 1, 0) + frame(PING, b"12345678", 1, 0))
    assert client.take_unsent() == b""


def test_end_of_the_connection() -> None:
    with pytest.raises(ConnectionEndedError):
        answered(frame(GOAWAY, bytes(8), stream=0))


def test_answer_is_whole_before_the_end_of_the_connection() -> None:
    answer = headers_of([STATUS], END_HEADERS | END_STREAM)
    assert answered(answer + frame(GOAWAY, bytes(8), stream=0)).answer.ended


@pytest.mark.parametrize(
    "data",
    [
        b"HTTP/1.1 400 Bad Request\r\n\r\n",
        frame(DATA, bytes(16_385)),
        frame(DATA, b"", stream=0),
        frame(HEADERS, b"", END_HEADERS, 0),
        frame(SETTINGS, b"", stream=1),
        frame(PING, bytes(8), stream=1),
        frame(GOAWAY, bytes(8), stream=1),
        frame(RESET, bytes(4), stream=0),
        frame(PUSH, bytes(4), END_HEADERS),
        frame(DATA, b"", PADDED),
        frame(DATA, bytes([4]) + bytes(4 - 1), PADDED),
        frame(HEADERS, bytes([9]), PADDED | END_HEADERS),
        frame(CONTINUATION, b"", END_HEADERS),
        frame(HEADERS) + frame(DATA),
        frame(HEADERS) + frame(PING, bytes(8), stream=0),
        frame(HEADERS) + frame(CONTINUATION, b"", END_HEADERS, 3),
        frame(HEADERS) + 5 * frame(CONTINUATION, bytes(16_384)),
        frame(HEADERS, b"\xff\xff\xff\xff", END_HEADERS),
        headers_of([("a", "b" * 10)])[:-3] + b"\xff\xff\xff",
    ],
    ids=range(19),
)
def test_what_a_server_may_not_send_is_an_error(data: bytes) -> None:
    with pytest.raises(KNOWN_ERRORS):
        answered(data)


def test_any_bytes_are_an_answer_or_a_known_error() -> None:
    """Random bytes, and answers of which a byte is another one."""
    _, server = asked()
    server.http2.send_headers(1, [STATUS, ("content-type", "application/grpc")])
    server.http2.send_data(1, bytes(range(100)), pad_length=10)
    server.http2.send_headers(1, [("grpc-status", "0"), ("a", "b" * 60)], end_stream=True)
    good = server.http2.data_to_send()
    source = random.Random(7)
    refused = 0
    for number in range(20_000):
        client = Http2Client()
        client.request(REQUEST, b"asked")
        data = bytearray(good if number % 4 else source.randbytes(60))
        for _ in range(source.randrange(1, 4)):
            data[source.randrange(len(data))] = source.randrange(256)
        try:
            client.receive(bytes(data))
        except KNOWN_ERRORS:
            refused += 1
        assert len(client.answer.body) <= len(data)
    assert 2000 < refused < 19_000
