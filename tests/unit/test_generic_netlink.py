"""Messages of generic netlink: what is asked, and answers that lie."""

from __future__ import annotations

import contextlib
import errno
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodevitals.linux.netlink import Answer, Ethtool, attribute, attributes, request
from nodevitals.probes.transceivers.ports import parse_error_correction

ACKNOWLEDGED = struct.pack("=IHHII", 20, 2, 0, 7, 0) + bytes(4)


def message(body: bytes, sequence: int = 7, length: int | None = None) -> bytes:
    size = 20 + len(body)
    size = size if length is None else length
    return struct.pack("=IHHIIBBH", size, 23, 0, sequence, 0, 1, 1, 0) + body


def test_request_has_its_length_and_padded_attributes() -> None:
    body = attribute(2, b"eth0\0")
    assert len(body) == 12
    data = request(23, 29, 7, body)
    assert struct.unpack_from("=IHHIIBBH", data) == (32, 23, 5, 7, 0, 29, 1, 0)
    assert dict(attributes(body)) == {2: b"eth0\0"}


def test_answer_is_complete_with_its_acknowledgement() -> None:
    answer = Answer(7)
    answer.feed(message(attribute(3, b"\1") + attribute(5 | 0x8000, b"abcd")))
    assert not answer.complete
    answer.feed(ACKNOWLEDGED)
    assert answer.complete
    assert answer.attributes == {3: b"\1", 5: b"abcd"}


def test_answer_to_another_request_is_left_out() -> None:
    answer = Answer(7)
    answer.feed(message(attribute(3, b"\1"), sequence=6))
    assert answer.attributes == {}


def test_refusal_is_an_error() -> None:
    refused = struct.pack("=IHHII", 20, 2, 0, 7, 0) + struct.pack("=i", -errno.EOPNOTSUPP)
    with pytest.raises(OSError, match="Operation not supported") as error:
        Answer(7).feed(refused)
    assert error.value.errno == errno.EOPNOTSUPP


@pytest.mark.parametrize(
    "data",
    [
        b"\1",
        message(b"")[:-1],
        message(b"", length=15),
        message(b"", length=18),
        message(b"", length=2**32 - 1),
        message(b"\1"),
        message(struct.pack("=HH", 3, 1)),
        message(struct.pack("=HH", 200, 1)),
        struct.pack("=IHHII", 18, 2, 0, 7, 0) + b"\0\0",
    ],
)
def test_truncated_answers_and_lying_lengths(data: bytes) -> None:
    with pytest.raises(ValueError, match=r"truncated|bytes"):
        Answer(7).feed(data)


@given(st.binary(max_size=120))
def test_no_answer_raises_anything_else(data: bytes) -> None:
    with contextlib.suppress(OSError, ValueError):
        Answer(7).feed(data)


def statistics(inner: bytes) -> dict[int, bytes]:
    return {5: inner}


def test_statistics_of_error_correction() -> None:
    ends = attribute(2, struct.pack("=I", 3)) + attribute(3, struct.pack("=I", 4))
    found = parse_error_correction(
        statistics(
            attribute(2, struct.pack("=QQQ", 10, 4, 6))
            + attribute(3, struct.pack("=Q", 2**64 - 1))
            + attribute(5 | 0x8000, ends + attribute(4, struct.pack("=Q", 99)))
        )
    )
    assert found.corrected_blocks == 10
    assert found.uncorrected_blocks is None  # the driver does not count them
    assert found.corrected_bits is None
    assert found.histogram == ((3, 99),)


def test_statistics_that_are_missing_or_too_short() -> None:
    assert parse_error_correction({}).corrected_blocks is None
    found = parse_error_correction(statistics(attribute(2, b"\1\2\3") + attribute(5, b"")))
    assert (found.corrected_blocks, found.histogram) == (None, ())
    many = b"".join(
        attribute(5, attribute(2, struct.pack("=I", n)) + attribute(4, bytes(8)))
        for n in range(500)
    )
    assert len(parse_error_correction(statistics(many)).histogram) < 20
    with pytest.raises(ValueError, match="bytes"):
        parse_error_correction(statistics(struct.pack("=HH", 40, 2)))


def test_kernel_knows_ethtool_and_refuses_what_a_driver_cannot() -> None:
    """The loopback interface of every machine has no module."""
    ethtool = Ethtool(20)
    try:
        with pytest.raises(OSError, match="not supported") as error:
            ethtool.module_page("lo", 0, 0, 0x50)
        assert error.value.errno == errno.EOPNOTSUPP
        with pytest.raises(OSError, match="No such device"):
            ethtool.module_page("nosuchlink", 0, 0, 0x50)
    finally:
        ethtool.close()
