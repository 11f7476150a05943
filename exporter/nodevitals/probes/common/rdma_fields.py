"""The text of an RDMA port's files as values; None for any other text. Pure."""

from __future__ import annotations

import re

ACTIVE = 4
ACTIVE_DEFER = 5
_ID = re.compile(r"([0-9]{1,9}): ")
# `400 Gb/sec (4X NDR)`; older kernels leave the name out.
_RATE = re.compile(r"([0-9]{1,9}(?:\.[0-9]{1,9})?) Gb/sec(?: \(.*\))?")


def parse_id(text: str) -> int | None:
    """The number in `4: ACTIVE`, also where the kernel has no name for it."""
    match = _ID.match(text)
    return int(match[1]) if match else None


def parse_rate(text: str) -> float | None:
    """Bytes per second of `400 Gb/sec (4X NDR)`."""
    match = _RATE.fullmatch(text)
    return float(match[1]) * 1e9 / 8 if match and float(match[1]) else None
