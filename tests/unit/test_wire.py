"""Frames: whole ones come out however the bytes arrive; what is no frame is refused."""

from __future__ import annotations

import pytest
from hypothesis import given
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


@given(st.lists(st.binary(max_size=200), max_size=5), st.integers(1, 50))
def test_frames_survive_any_cut(bodies: list[bytes], piece: int) -> None:
    stream = b"".join(frame(Run(body)) for body in bodies)
    reader = FrameReader()
    found = []
    for start in range(0, len(stream), piece):
        found += reader.feed(stream[start : start + piece])
    assert [decode(body, ToWorker).state for body in found] == bodies


@given(st.binary(min_size=1, max_size=300))
def test_random_bytes_are_refused_or_waited_for_and_never_believed(data: bytes) -> None:
    try:
        for body in FrameReader().feed(data):
            decode(body, ProbeResult)
    except ProtocolError:
        pass


def test_a_length_over_the_limit_is_refused_at_its_header() -> None:
    with pytest.raises(ProtocolError):
        FrameReader().feed((MAX_FRAME_BYTES + 1).to_bytes(4, "big"))


def test_a_result_over_the_limit_is_refused_by_its_sender() -> None:
    samples = tuple(Sample("nodevitals_x", ("x" * 1000,), n) for n in range(5000))
    with pytest.raises(ProtocolError):
        frame(ProbeResult(outcome="ok", samples=samples))


def test_a_deeply_nested_message_is_refused() -> None:
    with pytest.raises(ProtocolError):
        decode(b"\x91" * 100_000, ProbeResult)
