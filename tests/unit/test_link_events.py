"""Messages of rtnetlink: which interfaces changed. Every other datagram means: any of them."""

from __future__ import annotations

import struct

from hypothesis import given
from hypothesis import strategies as st

from nodevitals.linux.netlink import changed_interfaces

NEW, DELETED, ADDRESS = 16, 17, 20


def message(
    index: int, kind: int = NEW, attributes: bytes = b"", length: int | None = None
) -> bytes:
    body = struct.pack("=BxHiII", 0, 1, index, 0x1003, 0xFFFFFFFF) + attributes
    size = 16 + len(body)
    header = struct.pack("=IHHII", size if length is None else length, kind, 0, 1, 0)
    return header + body + b"\0" * (-size % 4)


def test_indexes_of_all_messages_of_a_datagram() -> None:
    data = message(3, attributes=b"\x05\0\x10\0\x06") + message(7, DELETED) + message(9, ADDRESS)
    assert changed_interfaces(data) == {3, 7}
    assert changed_interfaces(b"") == set()


def test_truncated_messages_and_lying_lengths() -> None:
    whole = message(3)
    for data in (
        whole[:-1],
        whole[:10],
        whole + b"\0\0\0",
        message(3, length=0),
        message(3, length=15),
        message(3, length=17),
        message(3, length=4000),
        message(3, length=0xFFFFFFFF),
    ):
        assert changed_interfaces(data) is None, data


@given(st.binary(max_size=200))
def test_no_datagram_raises(data: bytes) -> None:
    changed_interfaces(data)
