"""Reads agents' replies within limits: a hostile agent must not fill the hub's memory.

In: a streamed reply; the state of an order. Out: its bytes as sent; the state within an agent's own
limits. Raises ValueError for more bytes than the limit, also after decompression: a few bytes may
expand to gigabytes.
"""

from __future__ import annotations

import zlib
from itertools import islice

import httpx
from msgspec.structs import replace

from nodevitals.checks.requests.problems import LARGEST_RATE, LEAST_RATE
from nodevitals.probes.fabric.orders import (
    MAX_COMMAND,
    MAX_OUTPUT_BYTES,
    MAX_ROWS,
    MAX_TESTS,
    OrderStatus,
    TestRun,
)

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
        body = reader.decompress(data, most + 1)
    except zlib.error as error:
        raise ValueError(f"gzip: {error}") from None
    if len(body) > most:
        raise ValueError(f"over {most} bytes")
    if not reader.eof:
        raise ValueError("gzip: not complete")
    return body


def bounded(status: OrderStatus) -> OrderStatus:
    """The state of an order, cut to an agent's own limits."""
    reports = (
        replace(report, message=_line(report.message, MAX_MESSAGE), rows=report.rows[:MAX_ROWS])
        for report in status.reports[:MAX_TESTS]
    )
    versions = islice(status.versions.items(), MAX_VERSIONS)
    runs = status.runs[:MAX_TESTS]
    return replace(
        status,
        reports=tuple(reports),
        skipped=_line(status.skipped, MAX_WORD),
        governor=_line(status.governor, MAX_WORD),
        runs=tuple(_run(run, MAX_OUTPUT_BYTES // len(runs)) for run in runs),
        seconds=min(max(0.0, status.seconds), MAX_SECONDS),
        versions={_line(name, MAX_WORD): _line(text, MAX_MESSAGE) for name, text in versions},
    )


def _run(run: TestRun, share: int) -> TestRun:
    rate = run.port_bytes_per_second
    return TestRun(
        command=_line(run.command, MAX_COMMAND),
        output=run.output[:share],
        port_limit=_line(run.port_limit, MAX_WORD),
        port_bytes_per_second=rate if rate and LEAST_RATE <= rate <= LARGEST_RATE else None,
    )


def _line(text: str, most: int) -> str:
    return " ".join(text.split())[:most]
