"""Sizes of messages, as people write them.

In: `64KiB`, `8B,64KiB,1MiB`, or a sweep `8B..8GiB x2` (also with a multiplication sign). Out:
bytes, smallest first. Raises ValueError with one line that says what to write.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache

from nodevitals.errors import Wording
from nodevitals.quantities import shown

MAX_SIZES = 32
MAX_BYTES = 1 << 36
_UNITS = {
    "": 1,
    "B": 1,
    "K": 1 << 10,
    "KiB": 1 << 10,
    "M": 1 << 20,
    "MiB": 1 << 20,
    "G": 1 << 30,
    "GiB": 1 << 30,
}
_SIZE = re.compile(r"([0-9]{1,11}) ?(B|KiB|MiB|GiB|K|M|G)?")
_SWEEP = re.compile(r"([0-9a-zA-Z ]{1,16})\.\.([0-9a-zA-Z ]{1,16})[x\u00d7] ?([0-9]{1,4})")


@lru_cache(maxsize=64)
def parse_sizes(text: str) -> tuple[int, ...]:
    """The sizes in bytes, each once, smallest first. Cached: verdicts need them for each result."""
    if len(text) > 512:
        raise ValueError(
            Wording(
                "{value} is too long: write 64KiB, 8B,64KiB,1MiB or 8B..8GiB x2", value=shown(text)
            )
        )
    sweep = _SWEEP.fullmatch(text.strip())
    if sweep:
        sizes = _swept(parse_size(sweep[1]), parse_size(sweep[2]), int(sweep[3]))
    else:
        sizes = [parse_size(part) for part in text.split(",")]
    if len(sizes) > MAX_SIZES:
        raise ValueError(
            Wording(
                "{value} has over {most} sizes: choose a larger factor",
                value=shown(text),
                most=MAX_SIZES,
            )
        )
    return tuple(sorted(set(sizes)))


def parse_size(text: str) -> int:
    """One size in bytes."""
    match = _SIZE.fullmatch(text.strip())
    if match is None:
        raise ValueError(
            Wording(
                "{value} is no size: write 64KiB, 8B,64KiB,1MiB or 8B..8GiB x2",
                value=shown(text.strip()),
            )
        )
    size = int(match[1]) * _UNITS[match[2] or ""]
    if not 1 <= size <= MAX_BYTES:
        raise ValueError(
            Wording(
                "{value} is outside {low} to {high}: choose a size within",
                value=shown(text.strip()),
                low="1B",
                high="64GiB",
            )
        )
    return size


def spelled(sizes: Sequence[int]) -> str:
    """The sizes as `parse_sizes` reads them."""
    return ",".join(spelled_size(size) for size in sizes)


def spelled_size(size: int) -> str:
    """`64KiB`; bytes where it is no multiple."""
    for unit in ("GiB", "MiB", "KiB"):
        if size % _UNITS[unit] == 0:
            return f"{size // _UNITS[unit]}{unit}"
    return f"{size}B"


def _swept(first: int, last: int, factor: int) -> list[int]:
    if factor < 2:
        raise ValueError(Wording("a sweep's factor is at least 2: write 8B..8GiB x2"))
    if first > last:
        raise ValueError(Wording("a sweep's first size is over its last: exchange them"))
    sizes: list[int] = []
    while first <= last and len(sizes) <= MAX_SIZES:
        sizes.append(first)
        first *= factor
    return sizes
