"""Frames: complete however the bytes arrive; invalid ones are rejected."""

from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nodevitals.engine.protocol import Run, ToWorker
from nodevitals.wire import (
    MAX_FRAME_BYTES,
    FrameReader,
    ProbeResult,
    ProtocolError,
    Sample,
    decode,
    frame,
)


@settings(deadline=None)
@given(st.lists(st.binary(max_size=200), max_size=5), st.integers(1, 50))
def test_frames_are_complete_at_any_split(bodies: list[bytes], piece: int) -> None:
    stream = b"".join(frame(Run(state=body)) for body in bodies)
    reader = FrameReader()
    found = []
    for start in range(0, len(stream), piece):
        found += reader.feed(stream[start : start + piece])
    assert [decode(body, ToWorker).state for body in found] == bodies


@settings(deadline=None)
@given(st.binary(min_size=1, max_size=300))
def test_random_bytes_are_rejected_or_incomplete(data: bytes) -> None:
    with suppress(ProtocolError):
        for body in FrameReader().feed(data):
            decode(body, ProbeResult)


def test_frame_over_the_limit_is_rejected_at_its_header() -> None:
    with pytest.raises(ProtocolError):
        FrameReader().feed((MAX_FRAME_BYTES + 1).to_bytes(4, "big"))


def test_result_over_the_limit_is_rejected_by_its_sender() -> None:
    samples = tuple(Sample("nodevitals_x", ("x" * 1000,), n) for n in range(5000))
    with pytest.raises(ProtocolError):
        frame(ProbeResult(outcome="ok", samples=samples))


def test_deeply_nested_message_is_rejected() -> None:
    with pytest.raises(ProtocolError):
        decode(b"\x91" * 100_000, ProbeResult)
