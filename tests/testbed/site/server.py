"""The pages of the fleet over HTTP, and its past by Prometheus's remote write."""

from __future__ import annotations

import struct
import time
from collections.abc import Iterable, Iterator

import requests

from testbed.page_server import PageServer
from testbed.site.series import Series, ValueAt, page_of

PAGES = 4
_BATCH = 4000
_STALE = struct.pack("<Q", 0x7FF0000000000002)


class SitePages(PageServer):
    """The series of a site, on several pages."""

    def __init__(self, series: list[Series]) -> None:
        super().__init__(lambda path: page_of(self.series[int(path[1:]) :: PAGES], time.time()))
        self.series = series


def write(
    url: str,
    series: Iterable[Series],
    moments: list[float],
    before: float | None = None,
    ends: bool = True,
) -> None:
    """Give Prometheus the values of series at these times by remote write. With `ends`, a series
    that ends gets a staleness marker, also if it had its last value at the time `before`.
    """
    shared: dict[float, bytes] = {}
    batch: list[bytes] = []
    for one in series:
        if callable(one.value):
            samples = _moving(one.value, moments, before, ends)
        else:
            if one.value not in shared:
                shared[one.value] = b"".join(
                    _sample(moment, _number(one.value)) for moment in moments
                )
            samples = shared[one.value]
        if samples:
            batch.append(_field(1, _labels(one) + samples))
        if len(batch) >= _BATCH:
            _post(url, b"".join(batch))
            batch = []
    _post(url, b"".join(batch))


def _post(url: str, body: bytes) -> None:
    headers = {
        "Content-Type": "application/x-protobuf",
        "Content-Encoding": "snappy",
        "X-Prometheus-Remote-Write-Version": "0.1.0",
    }
    data = b"".join(_snappy(body))
    answer = requests.post(f"{url}/api/v1/write", data=data, headers=headers, timeout=120)
    assert answer.ok, answer.text[:2000]


def _varint(number: int) -> bytes:
    found = bytearray()
    while number > 127:
        found.append(number & 127 | 128)
        number >>= 7
    return bytes([*found, number])


def _field(number: int, body: bytes) -> bytes:
    return bytes([number << 3 | 2]) + _varint(len(body)) + body


def _number(value: float) -> bytes:
    return struct.pack("<d", value)


def _moving(value_at: ValueAt, moments: list[float], before: float | None, ends: bool) -> bytes:
    last = None if before is None else value_at(before)
    found = []
    for moment in moments:
        value = value_at(moment)
        if value is not None:
            found.append(_sample(moment, _number(value)))
        elif ends and last is not None:
            found.append(_sample(moment, _STALE))
        last = value
    return b"".join(found)


def _sample(moment: float, value: bytes) -> bytes:
    """Return a sample of a TimeSeries: https://prometheus.io/docs/concepts/remote_write_spec/."""
    stamp = b"\x10" + _varint(int(moment * 1000))
    return _field(2, b"\x09" + value + stamp)


def _labels(one: Series) -> bytes:
    pairs = sorted({"__name__": one.name, **one.labels}.items())
    return b"".join(
        _field(1, _field(1, name.encode()) + _field(2, text.encode()))
        for name, text in pairs
        if text
    )


def _snappy(body: bytes) -> Iterator[bytes]:
    """Frame bytes as Snappy without compression: the length, then literals of up to 64 KiB."""
    yield _varint(len(body))
    for first in range(0, len(body), 65536):
        part = body[first : first + 65536]
        yield bytes([61 << 2]) + struct.pack("<H", len(part) - 1) + part
