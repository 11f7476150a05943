"""A client's side of HTTP/2 for one short request at a time: bytes in, bytes and an answer out.

Pure: the socket is the caller's. hpack compresses the headers. h2, which knows all of HTTP/2, and
what it imports would be 1.6 MiB of the memory that all processes share.
https://www.rfc-editor.org/rfc/rfc9113
"""

from __future__ import annotations

import struct
from collections.abc import Iterable

import hpack

_PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
# A length of 24 bits, a type, flags, and a stream.
_HEAD = struct.Struct(">BHBBI")
_DATA, _HEADERS, _RESET, _SETTINGS, _PUSH, _PING, _GOAWAY = 0, 1, 3, 4, 5, 6, 7
_WINDOW, _CONTINUATION = 8, 9
# The others are ignored, as RFC 9113 asks: also those that it does not know.
_OF_THE_CONNECTION = (_SETTINGS, _PING, _GOAWAY)
_OF_A_STREAM = (_DATA, _HEADERS, _RESET, _PUSH, _CONTINUATION)
_END_STREAM, _ACKNOWLEDGED, _END_HEADERS, _PADDED, _PRIORITY = 0x1, 0x1, 0x4, 0x8, 0x20
_SETTING = struct.Struct(">HI")
_ENABLE_PUSH, _INITIAL_WINDOW_SIZE = 2, 4
_FIRST_WINDOW, _MAX_WINDOW = 2**16 - 1, 2**31 - 1
_MAX_FRAME_BYTES = 2**14
_MAX_BLOCK_BYTES = 2**16
_STREAM_BITS = 2**31 - 1


class Http2Error(ValueError):
    """Bytes that are no HTTP/2, or none that a server may send here."""


class ConnectionEndedError(Exception):
    """The server has said that it ends the connection."""


class Answer:
    """What has arrived of an answer. `reset`: the code with which the server ended it early."""

    def __init__(self) -> None:
        self.headers: dict[str, str] = {}
        self.body = bytearray()
        self.ended = False
        self.reset: int | None = None


class Http2Client:
    """One connection. A request is sent once the answer to the one before has ended."""

    def __init__(self) -> None:
        self._encoder = hpack.Encoder()
        self._encoder.header_table_size = 0  # whatever the server's is
        self._decoder = hpack.Decoder()
        self._received = bytearray()
        self._block: bytearray | None = None
        """Compressed headers whose end has not arrived."""
        self._block_ends = False
        """Whether the answer ends with them."""
        self._block_stream = 0
        self._stream = -1
        self.answer = Answer()
        """The answer to the last request."""
        # The server need not wait for us in the middle of an answer.
        settings = _SETTING.pack(_ENABLE_PUSH, 0) + _SETTING.pack(_INITIAL_WINDOW_SIZE, _MAX_WINDOW)
        self._unsent = bytearray(_PREFACE)
        self._send(_SETTINGS, 0, 0, settings)
        self._send(_WINDOW, 0, 0, (_MAX_WINDOW - _FIRST_WINDOW).to_bytes(4, "big"))

    def request(self, headers: Iterable[tuple[str, str]], body: bytes) -> None:
        """Queue a request, whose headers and body fit into a frame each."""
        self._stream += 2
        self.answer = Answer()
        self._send(_HEADERS, _END_HEADERS, self._stream, self._encoder.encode(list(headers)))
        self._send(_DATA, _END_STREAM, self._stream, body)

    def take_unsent(self) -> bytes:
        """What is to be sent to the server now."""
        data, self._unsent = bytes(self._unsent), bytearray()
        return data

    def receive(self, data: bytes) -> None:
        """Take in what has arrived. Raises Http2Error, hpack.HPACKError, ConnectionEndedError."""
        self._received += data
        while len(self._received) >= _HEAD.size:
            high, low, kind, flags, stream = _HEAD.unpack_from(self._received)
            length = high << 16 | low
            if length > _MAX_FRAME_BYTES:
                raise Http2Error(f"a frame of {length} bytes")
            end = _HEAD.size + length
            if len(self._received) < end:
                return
            payload = bytes(self._received[_HEAD.size : end])
            del self._received[:end]
            self._take(kind, flags, stream & _STREAM_BITS, payload)

    def _send(self, kind: int, flags: int, stream: int, payload: bytes) -> None:
        self._unsent += _HEAD.pack(len(payload) >> 16, len(payload) & 0xFFFF, kind, flags, stream)
        self._unsent += payload

    def _take(self, kind: int, flags: int, stream: int, payload: bytes) -> None:
        if (self._block is not None) != (kind == _CONTINUATION):
            raise Http2Error(f"a frame of type {kind} in the wrong place")
        if kind in (_OF_THE_CONNECTION if stream else _OF_A_STREAM):
            raise Http2Error(f"a frame of type {kind} for stream {stream}")
        if kind == _DATA:
            self._take_data(flags, stream, payload)
        elif kind in (_HEADERS, _CONTINUATION):
            self._take_headers(kind, flags, stream, payload)
        elif kind == _RESET and stream == self._stream:
            self.answer.reset = int.from_bytes(payload, "big")
        elif kind in (_SETTINGS, _PING):
            self._acknowledge(kind, flags, payload)
        elif kind == _GOAWAY and not self.answer.ended:
            raise ConnectionEndedError
        elif kind == _PUSH:
            raise Http2Error("a pushed answer")

    def _acknowledge(self, kind: int, flags: int, payload: bytes) -> None:
        if not flags & _ACKNOWLEDGED:
            self._send(kind, _ACKNOWLEDGED, 0, payload if kind == _PING else b"")

    def _take_data(self, flags: int, stream: int, payload: bytes) -> None:
        if stream == self._stream:
            self.answer.body += _without_padding(flags, payload)
            self.answer.ended |= bool(flags & _END_STREAM)

    def _take_headers(self, kind: int, flags: int, stream: int, payload: bytes) -> None:
        if kind == _HEADERS:
            self._block, self._block_stream = bytearray(), stream
            self._block_ends = bool(flags & _END_STREAM)
            payload = _without_padding(flags, payload)[5 if flags & _PRIORITY else 0 :]
        assert self._block is not None
        self._block += payload
        if stream != self._block_stream or len(self._block) > _MAX_BLOCK_BYTES:
            raise Http2Error(f"headers of stream {stream} that are in pieces")
        if flags & _END_HEADERS:
            # Also those of another stream: each changes what the next ones mean.
            pairs = self._decoder.decode(bytes(self._block), raw=True)
            self._block = None
            if stream == self._stream:
                self.answer.headers.update((str(n, "utf-8"), str(v, "utf-8")) for n, v in pairs)
                self.answer.ended |= self._block_ends


def _without_padding(flags: int, payload: bytes) -> bytes:
    if not flags & _PADDED:
        return payload
    if not payload or payload[0] >= len(payload):
        raise Http2Error("more padding than bytes")
    return payload[1 : len(payload) - payload[0]]
