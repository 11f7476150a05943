"""Agents' replies, within limits: what a hostile agent sends must not fill the hub.

In: a reply that is streamed; the state of an order. Out: its bytes as sent; the state with no more
than an agent keeps. Raises ValueError for more bytes than the limit, and for a compressed reply
that becomes more: a few bytes may stand for gigabytes.
"""

from __future__ import annotations

import zlib
from itertools import islice

import httpx
from msgspec.structs import replace

from nodevitals.checks.requests.problems import LARGEST_RATE, LEAST_RATE
from nodevitals.probes.fabric.orders import MAX_RAW_BYTES, MAX_ROWS, MAX_TESTS, OrderStatus

MAX_MESSAGE = 300
MAX_WORD = 64
MAX_VERSIONS = 8
MAX_SECONDS = 86400.0
_GZIP = 16 + zlib.MAX_WBITS


async def body_of(reply: httpx.Response, most: int) -> bytes:
    """The bytes of a body, as they were sent."""
    read = bytearray()
    async for chunk in reply.aiter_raw():
        read += chunk
        if len(read) > most:
            raise ValueError(f"over {most} bytes")
    return bytes(read)


def decompressed(data: bytes, encoding: str, most: int) -> bytes:
    """A body without its Content-Encoding, of which only gzip is known."""
    if encoding in ("", "identity"):
        return data
    if encoding != "gzip":
        raise ValueError(f"Content-Encoding {encoding[:40]!r}")
    reader = zlib.decompressobj(_GZIP)
    try:
        found = reader.decompress(data, most + 1)
    except zlib.error as error:
        raise ValueError(f"gzip: {error}") from None
    if len(found) > most:
        raise ValueError(f"over {most} bytes")
    if not reader.eof:
        raise ValueError("gzip: not complete")
    return found


def bounded(status: OrderStatus) -> OrderStatus:
    """The state of an order with no more than an agent keeps of it."""
    reports = (
        replace(one, message=_line(one.message, MAX_MESSAGE), rows=one.rows[:MAX_ROWS])
        for one in status.reports[:MAX_TESTS]
    )
    versions = islice(status.versions.items(), MAX_VERSIONS)
    rate = status.port_bytes_per_second
    return replace(
        status,
        reports=tuple(reports),
        skipped=_line(status.skipped, MAX_WORD),
        raw=status.raw[:MAX_RAW_BYTES],
        seconds=min(max(0.0, status.seconds), MAX_SECONDS),
        versions={_line(name, MAX_WORD): _line(text, MAX_MESSAGE) for name, text in versions},
        port_bytes_per_second=rate if rate and LEAST_RATE <= rate <= LARGEST_RATE else None,
    )


def _line(text: str, most: int) -> str:
    return " ".join(text.split())[:most]
