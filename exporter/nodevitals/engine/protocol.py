"""What the agent, its fork server and its workers say to each other, and how it is framed.

Worker channel: a stream of frames, each a 4-byte big-endian length and that much msgpack.
Fork server: one msgpack message a SOCK_SEQPACKET datagram. Everything is decoded to a type; a
frame that is too long or does not decode is a ProtocolError, and its sender is killed. Nothing
here is ever a pickle: a worker whose memory a driver has overwritten must not run code here.
"""

from __future__ import annotations

from typing import Any, TypeVar

import msgspec

from nodevitals.linux.host import Host

MAX_FRAME_BYTES = 4 * 1024 * 1024
_HEADER_BYTES = 4
MessageType = TypeVar("MessageType")


class ProtocolError(Exception):
    """The peer sent what no peer of ours sends."""


class Job(msgspec.Struct, frozen=True, tag="job"):
    """Sent once: which probe to be, on which target. `settings` is msgpack of its Settings;
    `required` makes the absence of the hardware a failure.
    """

    probe: str
    target: str
    settings: bytes
    host: Host
    stay: bool
    required: bool = False


class Run(msgspec.Struct, frozen=True, tag="run"):
    """Sent for each run. `carry` is what the last run left, or a resident's input; `received` and
    `forgotten` are as in `Readings`.
    """

    carry: bytes = b""
    received: tuple[bytes, ...] = ()
    forgotten: tuple[str, ...] = ()


class Spawn(msgspec.Struct, frozen=True, tag="spawn"):
    """To the fork server, with two descriptors: the worker's channel and its stderr."""

    worker: int


class Kill(msgspec.Struct, frozen=True, tag="kill"):
    """To the fork server: send a signal to a worker's process group."""

    worker: int
    signal: int


class Ping(msgspec.Struct, frozen=True, tag="ping"):
    """To the fork server: are you there?"""


class Started(msgspec.Struct, frozen=True, tag="started"):
    """From the fork server: the worker's process id."""

    worker: int
    pid: int


class Exited(msgspec.Struct, frozen=True, tag="exited"):
    """From the fork server: reaped, or never born. `status` is an exit code, or a signal's
    number negated; `note` says what the fork server knows beyond that.
    """

    worker: int
    status: int
    note: str = ""


class Pong(msgspec.Struct, frozen=True, tag="pong"):
    """From the fork server: I am here, with this many workers."""

    workers: int


ToForkServer = Spawn | Kill | Ping
FromForkServer = Started | Exited | Pong
ToWorker = Job | Run

encode = msgspec.msgpack.Encoder().encode


def decode(data: bytes, kind: Any) -> Any:
    """One message of a type. Raises ProtocolError."""
    try:
        return msgspec.msgpack.decode(data, type=kind)
    except (msgspec.DecodeError, msgspec.ValidationError, RecursionError) as error:
        raise ProtocolError(f"unreadable message: {error}") from None


def frame(message: msgspec.Struct) -> bytes:
    """A message as one frame. Raises ProtocolError when it is too long for one."""
    body = encode(message)
    if len(body) > MAX_FRAME_BYTES:
        raise ProtocolError(f"a message of {len(body)} bytes, over {MAX_FRAME_BYTES}")
    return len(body).to_bytes(_HEADER_BYTES, "big") + body


class FrameReader:
    """Bytes as they arrive in, whole frames out. Holds at most one frame and a piece."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, data: bytes) -> list[bytes]:
        """The frames that these bytes complete. Raises ProtocolError at a length too large."""
        self._buffer += data
        frames = []
        while len(self._buffer) >= _HEADER_BYTES:
            length = int.from_bytes(self._buffer[:_HEADER_BYTES], "big")
            if length > MAX_FRAME_BYTES:
                raise ProtocolError(f"a frame of {length} bytes, over {MAX_FRAME_BYTES}")
            end = _HEADER_BYTES + length
            if len(self._buffer) < end:
                break
            frames.append(bytes(self._buffer[_HEADER_BYTES:end]))
            del self._buffer[:end]
        return frames
