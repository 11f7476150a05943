"""Statistics of forward error correction in an answer of ethtool. Pure."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import Optional

import msgspec

from nodevitals.linux.generic_netlink import attributes

_STATISTICS = 5
_CORRECTED, _UNCORRECTED, _CORRECTED_BITS, _HISTOGRAM = 2, 3, 4, 5
_BIN_LOW, _BIN_VALUE = 2, 4
_UNKNOWN = 2**64 - 1
MAX_BINS = 17


class ErrorCorrection(msgspec.Struct, frozen=True):
    """Counts since the driver was loaded: blocks, bits, and `histogram`: the blocks by the number
    of wrong symbols in them (the lowest of each bin). None where the driver does not count.
    """

    corrected_blocks: Optional[int] = None
    uncorrected_blocks: Optional[int] = None
    corrected_bits: Optional[int] = None
    histogram: tuple[tuple[int, int], ...] = ()


def parse_error_correction(answer: Mapping[int, bytes]) -> ErrorCorrection:
    """The statistics. Raises ValueError where they cannot be decoded."""
    counts: dict[int, int] = {}
    bins: dict[int, int] = {}
    for kind, data in attributes(answer.get(_STATISTICS, b"")):
        if kind == _HISTOGRAM:
            inner = dict(attributes(data))
            low, value = _integer(inner.get(_BIN_LOW, b"")), _integer(inner.get(_BIN_VALUE, b""))
            if low is not None and value is not None and len(bins) < MAX_BINS:
                bins[low] = value
        else:
            value = _integer(data[:8])  # the total; those of the lanes follow
            if value is not None:
                counts[kind] = value
    return ErrorCorrection(
        counts.get(_CORRECTED),
        counts.get(_UNCORRECTED),
        counts.get(_CORRECTED_BITS),
        tuple(sorted(bins.items())),
    )


def _integer(data: bytes) -> int | None:
    if len(data) not in (4, 8):
        return None
    value = struct.unpack("=Q" if len(data) == 8 else "=I", data)[0]
    return None if value == _UNKNOWN else int(value)
