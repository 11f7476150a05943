"""The data between processes: the records of a run, in frames of msgpack.

A frame is a 4-byte big-endian length and msgpack of that length. Everything is decoded to a type; a
frame that is too long or cannot be decoded is a ProtocolError, and its sender is killed. Pickle is
never used: a worker whose memory a driver has overwritten must not run code in the agent.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Annotated, Any, Literal, Union

import msgspec

Outcome = Literal["ok", "absent", "error", "timeout", "stuck"]
OUTCOMES: tuple[Outcome, ...] = ("ok", "absent", "error", "timeout", "stuck")

MAX_FRAME_BYTES = 4 * 1024 * 1024
MAX_STATE_BYTES = 1024 * 1024
MAX_MESSAGE_BYTES = 64 * 1024
MAX_REASON_CHARACTERS = 64
MAX_DEVICE_CHARACTERS = 64
MAX_NOTES = 64
MAX_TEXT_CHARACTERS = 500
MAX_TRACE_CHARACTERS = 8000
_HEADER_BYTES = 4
_ONE_LINE = r"\A[^\r\n]*\Z"


class ProtocolError(Exception):
    """The other process sent invalid data."""


# The longest names are paths.
MAX_NAME_CHARACTERS = 8192
MAX_DETAIL_CHARACTERS = 4096
Name = Annotated[str, msgspec.Meta(max_length=MAX_NAME_CHARACTERS)]
Detail = Annotated[str, msgspec.Meta(max_length=MAX_DETAIL_CHARACTERS)]


class Sample(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """A family's value for one set of label values, in the family's order of labels."""

    family: Name
    labels: tuple[Name, ...]
    value: float


class Condition(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """The state a device or target is in, for the history; only changes become rows.

    `device` is its lasting identity (uuid, serial, mount path), `state` one word.
    """

    device: Name
    state: Name
    detail: Detail = ""


class Event(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """Something that happened to a device: always a row of the history.

    `time` is in seconds since the epoch; 0 means now.
    """

    device: Name
    state: Name
    detail: Detail = ""
    time: float = 0.0


class Message(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """From one probe to another: the receiver's `Message` in msgpack. The agent delivers it with
    each run of the receiver, until a run has returned a result.
    """

    probe: str
    body: Annotated[bytes, msgspec.Meta(max_length=MAX_MESSAGE_BYTES)]


LEASES = "leases"
"""The receiver of a Lease, in place of a probe's name: the agent itself."""
MAX_LEASE_SECONDS = 60.0
MAX_LEASED_PROBES = 8


class Lease(msgspec.Struct, array_like=True, frozen=True):
    """To the agent, in a Message to LEASES: run these probes every second for `seconds`. It
    replaces the last lease; without probes it only ends that one.
    """

    probes: Annotated[
        tuple[Annotated[str, msgspec.Meta(max_length=MAX_REASON_CHARACTERS)], ...],
        msgspec.Meta(max_length=MAX_LEASED_PROBES),
    ]
    seconds: Annotated[float, msgspec.Meta(ge=0, le=MAX_LEASE_SECONDS)]
    number: int = 0
    """Chosen by the sender; the reply has the same."""


LeaseState = Literal["active", "off", "excluded", "targets", "failing", "slow"]
"""active: at least one target runs more often. off: the probe has no target here. excluded: the
history, and the probe that asks. targets: it has too many. failing: no last run was ok. slow: a run
takes over half of the configured interval."""


class LeaseReply(msgspec.Struct, array_like=True, frozen=True):
    """From the agent to the probe that sent a Lease: the lease's state for each probe."""

    number: int
    states: dict[str, LeaseState]


class Note(msgspec.Struct, array_like=True, frozen=True):
    """A line for the agent's log."""

    text: Annotated[str, msgspec.Meta(max_length=MAX_TEXT_CHARACTERS, pattern=_ONE_LINE)]
    warning: bool = False


class ProbeResult(msgspec.Struct, frozen=True, kw_only=True, tag="result"):
    """The result of one run.

    `reason` is one word, `text` one line, `trace` a traceback or ''. `increments` add to counters
    that the agent keeps; `state` is the probe's State for the next run in msgpack, or b'' to keep
    the last one; `stays`: the worker waits for another run. `unfinished_at` is set for a run that
    goes on and may soon be past its deadline: it names the device that is read, `text` names the
    current call, and `samples` are those so far.
    """

    outcome: Outcome
    samples: tuple[Sample, ...] = ()
    increments: tuple[Sample, ...] = ()
    conditions: tuple[Condition, ...] = ()
    events: tuple[Event, ...] = ()
    messages: tuple[Message, ...] = ()
    notes: Annotated[tuple[Note, ...], msgspec.Meta(max_length=MAX_NOTES)] = ()
    reason: Annotated[str, msgspec.Meta(max_length=MAX_REASON_CHARACTERS, pattern=_ONE_LINE)] = ""
    text: Annotated[str, msgspec.Meta(max_length=MAX_TEXT_CHARACTERS, pattern=_ONE_LINE)] = ""
    trace: Annotated[str, msgspec.Meta(max_length=MAX_TRACE_CHARACTERS)] = ""
    duration_seconds: float = 0.0
    state: Annotated[bytes, msgspec.Meta(max_length=MAX_STATE_BYTES)] = b""
    stays: bool = False
    unfinished_at: Annotated[
        str, msgspec.Meta(max_length=MAX_DEVICE_CHARACTERS, pattern=_ONE_LINE)
    ] = ""


class Wanted(msgspec.Struct, frozen=True, tag="wanted"):
    """From a process with probes that stay open: this target has something to read."""

    probe: Name
    target: Name


FromWorker = Union[ProbeResult, Wanted]


def one_line(text: str, characters: int = MAX_TEXT_CHARACTERS) -> str:
    """Text that a ProbeResult accepts: with folded white space, and of bounded length."""
    return " ".join(text.split())[:characters]


def without_controls(text: str) -> str:
    """Text that is safe in logs and on terminals: question marks replace control characters."""
    return "".join(letter if letter.isprintable() else "?" for letter in text)


encode = msgspec.msgpack.Encoder().encode


@lru_cache(maxsize=64)
def _decoder(kind: Any) -> msgspec.msgpack.Decoder[Any]:
    """The decoder of a type. Cached: creating it takes longer than decoding most messages."""
    return msgspec.msgpack.Decoder(kind)


def decode(data: bytes, kind: Any) -> Any:
    """One value of a type. Raises ProtocolError."""
    try:
        return _decoder(kind).decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ProtocolError(f"unreadable message: {error}") from None


def frame(message: msgspec.Struct) -> bytes:
    """A message as one frame. Raises ProtocolError when it is too long for one."""
    body = encode(message)
    if len(body) > MAX_FRAME_BYTES:
        raise ProtocolError(f"a message of {len(body)} bytes, over {MAX_FRAME_BYTES}")
    return len(body).to_bytes(_HEADER_BYTES, "big") + body


class FrameReader:
    """Splits received bytes into frames. Holds at most one frame and the beginning of the next."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, data: bytes) -> list[bytes]:
        """The frames that these bytes complete. Raises ProtocolError where a frame is too long."""
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
