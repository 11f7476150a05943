"""A transceiver or cable: what it is, and what its sensors read. Pure.

In: functions that read a page of its memory, or bytes. Values are in base units; what a module has
no sensor for is None.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Optional

import msgspec

# Reads 128 bytes: page, offset (0 or 128), I2C address.
ReadPage = Callable[[int, int, int], bytes]
LOW, HIGH = 0, 128
HALF_BYTES = 128

_TENTH_MICROWATT = 1e-7
_TWO_MICROAMPERES = 2e-6
_TENTH_MILLIVOLT = 1e-4
# No module works at such a voltage: it has no sensors, or they are not ready.
_NO_VOLTAGES = (0, 0xFFFF)


class Lane(msgspec.Struct, frozen=True):
    """One lane; the first is 1."""

    number: int
    receive_watts: Optional[float] = None
    transmit_watts: Optional[float] = None
    bias_amperes: Optional[float] = None


class Module(msgspec.Struct, frozen=True, kw_only=True):
    """A module. The limits are its own, for warnings."""

    kind: str
    copper: bool = False
    manufacturer: str = ""
    part_number: str = ""
    serial: str = ""
    temperature_celsius: Optional[float] = None
    voltage_volts: Optional[float] = None
    lanes: tuple[Lane, ...] = ()
    temperature_high_celsius: Optional[float] = None
    receive_low_watts: Optional[float] = None
    transmit_low_watts: Optional[float] = None


def unsigned(data: bytes, place: int) -> int:
    """16 bits, the high byte first."""
    return int(struct.unpack_from(">H", data, place)[0])


def temperature(data: bytes, place: int) -> float:
    """Degrees Celsius."""
    return float(struct.unpack_from(">h", data, place)[0]) / 256


def voltage(data: bytes, place: int) -> float | None:
    """Volts; None where the module does not measure."""
    value = unsigned(data, place)
    return None if value in _NO_VOLTAGES else value * _TENTH_MILLIVOLT


def power(data: bytes, place: int) -> float:
    """Watts; 0 without light."""
    return unsigned(data, place) * _TENTH_MICROWATT


def bias(data: bytes, place: int, factor: int = 1) -> float:
    """Amperes."""
    return unsigned(data, place) * _TWO_MICROAMPERES * factor


def limit(value: float) -> float | None:
    """A limit of the module; None where it has none."""
    return value or None


def text(data: bytes, start: int, length: int) -> str:
    """A field of text; '' where it is none."""
    field = data[start : start + length].strip(b" \0")
    return field.decode("ascii") if all(0x20 <= byte < 0x7F for byte in field) else ""


def check_sum(data: bytes, start: int, end: int, place: int) -> None:
    """Raises ValueError where the byte at `place` is not the sum of those from `start` up to `end`:
    the memory was read wrongly, or not at all.
    """
    if sum(data[start:end]) & 0xFF != data[place]:
        raise ValueError(f"wrong checksum at byte {place}")
