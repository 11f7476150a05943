"""Values for people. In: a family and a number. Out: text with a unit: `93.1 GiB`, `61 °C`."""

from __future__ import annotations

import math
from collections.abc import Sequence

from nodevitals.commands.terminal import local_time
from nodevitals.families import Family

_BINARY = ("B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB")
_DECIMAL = ("B/s", "kB/s", "MB/s", "GB/s", "TB/s", "PB/s")
_UNITS = {"celsius": " °C", "watts": " W", "volts": " V", "amperes": " A", "joules": " J"}
_LATEST = 2**35
"""A Unix time above this is none."""


def human(family: Family, value: float) -> str:
    """A value with the unit that the family's name and help give it."""
    if not math.isfinite(value):
        return f"{value:g}"
    name = family.name.removesuffix("_total")
    if family.help.startswith("Whether ") and value in (0, 1):
        return "yes" if value else "no"
    if family.help.startswith("Unix time ") and 0 < value < _LATEST:
        return local_time(value)
    if name.endswith("_bytes_per_second"):
        return _scaled(value, 1000, _DECIMAL)
    if name.endswith("_bytes"):
        return _scaled(value, 1024, _BINARY)
    if name.endswith("_seconds"):
        return seconds(value)
    if name.endswith("_ratio"):
        return f"{value * 100:.4g}%"
    if name.endswith("_hertz"):
        return f"{value / 1e6:.6g} MHz"
    whole = value == int(value) and abs(value) < 1e15
    number = f"{value:,.0f}" if whole else f"{value:.4g}"
    return f"{number}{_UNITS.get(name.rpartition('_')[2], '')}"


def seconds(value: float) -> str:
    """A duration in the unit that fits."""
    if value != 0 and abs(value) < 1:
        return f"{value * 1000:.3g} ms" if abs(value) >= 0.001 else f"{value * 1e6:.3g} µs"
    if abs(value) < 120:
        return f"{value:.3g} s"
    days, rest = divmod(int(value), 86400)
    hours, rest = divmod(rest, 3600)
    parts = ((days, "d"), (hours, "h"), (rest // 60, "m"))
    return " ".join(f"{number}{unit}" for number, unit in parts if number)


def _scaled(value: float, base: int, units: Sequence[str]) -> str:
    """Small numbers as they are: a page is 4096 B."""
    if abs(value) < 10 * base:
        return f"{value:,.4g} {units[0]}" if value != int(value) else f"{value:,.0f} {units[0]}"
    power = min(int(math.log(abs(value), base)), len(units) - 1)
    return f"{value / base**power:.4g} {units[power]}"
