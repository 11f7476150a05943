"""A transceiver or cable: what it is, and what its sensors read. Pure.

In: functions that read a page of its memory, or bytes. Values are in base units; a value without a
sensor is None. The first byte is the kind (SFF-8024): CMIS of QSFP-DD, OSFP and QSFP112,
https://www.oiforum.com/technical-work/hot-topics/management/, SFF-8472 of SFP and SFF-8636 of QSFP,
https://members.snia.org/document/dl/25916, https://members.snia.org/document/dl/26418
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Optional

import msgspec

# Reads 128 bytes: page, offset (0 or 128), I2C address.
ReadPage = Callable[[int, int, int], bytes]
LOW, HIGH = 0, 128

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
    """Volts; None if the module does not measure them."""
    value = unsigned(data, place)
    return None if value in _NO_VOLTAGES else value * _TENTH_MILLIVOLT


def power(data: bytes, place: int) -> float:
    """Watts; 0 without light."""
    return unsigned(data, place) * _TENTH_MICROWATT


def bias(data: bytes, place: int, factor: int = 1) -> float:
    """Amperes."""
    return unsigned(data, place) * _TWO_MICROAMPERES * factor


def limit(value: float) -> float | None:
    """A limit of the module; None if it has none."""
    return value or None


def text(data: bytes, start: int, length: int) -> str:
    """A field of text; '' if it is no text."""
    field = data[start : start + length].strip(b" \0")
    return field.decode("ascii") if all(0x20 <= byte < 0x7F for byte in field) else ""


def check_sum(data: bytes, start: int, end: int, place: int) -> None:
    """Raises ValueError if the byte at `place` is not the sum of the bytes from `start` up to
    `end`: then the memory was read wrongly, or not at all.
    """
    if sum(data[start:end]) & 0xFF != data[place]:
        raise ValueError(f"wrong checksum at byte {place}")


_ADDRESS = 0x50
_LANES = 8
_FLAT = 0x80
_PASSIVE_COPPER = 0x03
_FIRST_COPPER_TECHNOLOGY, _LAST_COPPER_TECHNOLOGY = 0x0A, 0x0F
_BIAS, _TRANSMIT, _RECEIVE = 0x01, 0x02, 0x04


def read_cmis(read: ReadPage, low: bytes, kind: str) -> Module:
    """A module; `low` is its first half page. Raises ValueError, and what `read` raises."""
    page = low + read(0, HIGH, _ADDRESS)
    check_sum(page, 128, 222, 222)
    technology = page[212]
    copper = low[85] == _PASSIVE_COPPER or (
        _FIRST_COPPER_TECHNOLOGY <= technology <= _LAST_COPPER_TECHNOLOGY
    )
    known = Module(
        kind=kind,
        copper=copper,
        manufacturer=text(page, 129, 16),
        part_number=text(page, 148, 16),
        serial=text(page, 166, 16),
    )
    volts = voltage(page, 16)
    if copper or volts is None or low[2] & _FLAT:
        return known
    return _with_sensors(known, read, page, volts)


def _with_sensors(known: Module, read: ReadPage, page: bytes, volts: float) -> Module:
    # Offsets below are those within the upper half of a page.
    offered = read(1, HIGH, _ADDRESS)
    check_sum(offered, 2, 127, 127)
    limits = read(2, HIGH, _ADDRESS)
    check_sum(limits, 0, 127, 127)
    lanes, monitors = read(0x11, HIGH, _ADDRESS), offered[32]
    unsupported = page[210]
    factor = 1 << (monitors >> 3 & 3)
    return Module(
        kind=known.kind,
        manufacturer=known.manufacturer,
        part_number=known.part_number,
        serial=known.serial,
        temperature_celsius=temperature(page, 14),
        voltage_volts=volts,
        lanes=tuple(
            _lane(lanes, lane, monitors, factor)
            for lane in range(_LANES)
            if not unsupported >> lane & 1
        ),
        temperature_high_celsius=limit(temperature(limits, 4)),
        transmit_low_watts=limit(power(limits, 54)) if monitors & _TRANSMIT else None,
        receive_low_watts=limit(power(limits, 70)) if monitors & _RECEIVE else None,
    )


def _lane(data: bytes, lane: int, monitors: int, factor: int) -> Lane:
    place = 2 * lane
    return Lane(
        lane + 1,
        power(data, 58 + place) if monitors & _RECEIVE else None,
        power(data, 26 + place) if monitors & _TRANSMIT else None,
        bias(data, 42 + place, factor) if monitors & _BIAS else None,
    )


_FIRST, _SECOND = 0x50, 0x51
_QSFP_LANES = 4
_COPPER_TECHNOLOGY = 0xA
_QSFP_FLAT, _QSFP_TRANSMIT_POWER = 0x04, 0x04
_SFP_COPPER, _SFP_DIAGNOSTICS, _SFP_INTERNALLY_CALIBRATED = 0x0C, 0x40, 0x20


def read_sfp(read: ReadPage, first: bytes) -> Module:
    """An SFP module; `first` is its first half page. Raises ValueError, and what `read` raises."""
    check_sum(first, 0, 63, 63)
    check_sum(first, 64, 95, 95)
    copper, diagnostics = bool(first[8] & _SFP_COPPER), first[92]
    known = Module(
        kind="SFP",
        copper=copper,
        manufacturer=text(first, 20, 16),
        part_number=text(first, 40, 16),
        serial=text(first, 68, 16),
    )
    measured = diagnostics & _SFP_DIAGNOSTICS and diagnostics & _SFP_INTERNALLY_CALIBRATED
    if copper or not measured:
        return known
    return _with_sfp_sensors(known, read(0, LOW, _SECOND))


def _with_sfp_sensors(known: Module, data: bytes) -> Module:
    volts = voltage(data, 98)
    if volts is None:
        return known
    return Module(
        kind=known.kind,
        manufacturer=known.manufacturer,
        part_number=known.part_number,
        serial=known.serial,
        temperature_celsius=temperature(data, 96),
        voltage_volts=volts,
        lanes=(Lane(1, power(data, 104), power(data, 102), bias(data, 100)),),
        temperature_high_celsius=limit(temperature(data, 4)),
        transmit_low_watts=limit(power(data, 30)),
        receive_low_watts=limit(power(data, 38)),
    )


def read_qsfp(read: ReadPage, low: bytes) -> Module:
    """A QSFP module; `low` is its first half page. Raises ValueError, and what `read` raises."""
    page = low + read(0, HIGH, _FIRST)
    check_sum(page, 128, 191, 191)
    check_sum(page, 192, 223, 223)
    copper, volts = page[147] >> 4 >= _COPPER_TECHNOLOGY, voltage(page, 26)
    measured = not copper and volts is not None
    limits = read(3, HIGH, _FIRST) if measured and not low[2] & _QSFP_FLAT else b""
    transmits = bool(page[220] & _QSFP_TRANSMIT_POWER)
    return Module(
        kind="QSFP",
        copper=copper,
        manufacturer=text(page, 148, 16),
        part_number=text(page, 168, 16),
        serial=text(page, 196, 16),
        temperature_celsius=temperature(page, 22) if measured else None,
        voltage_volts=volts if measured else None,
        lanes=tuple(_qsfp_lane(page, lane, transmits) for lane in range(_QSFP_LANES))
        if measured
        else (),
        temperature_high_celsius=limit(temperature(limits, 4)) if limits else None,
        receive_low_watts=limit(power(limits, 54)) if limits else None,
        transmit_low_watts=limit(power(limits, 70)) if limits and transmits else None,
    )


def _qsfp_lane(page: bytes, lane: int, transmits: bool) -> Lane:
    place = 2 * lane
    sent = power(page, 50 + place) if transmits else None
    return Lane(lane + 1, power(page, 34 + place), sent, bias(page, 42 + place))


_PATH_ADDRESS = 0x50
_SFP = 0x03
_QSFP = (0x0C, 0x0D, 0x11)
_CMIS = {0x18: "QSFP-DD", 0x19: "OSFP", 0x1E: "QSFP", 0x1F: "SFP-DD"}


def read_module(read: ReadPage) -> Module | None:
    """The module; None for an unknown kind. Raises ValueError if its memory is invalid, and what
    `read` raises.
    """
    first = read(0, LOW, _PATH_ADDRESS)
    if first[0] == _SFP:
        return read_sfp(read, first)
    if first[0] in _QSFP:
        return read_qsfp(read, first)
    if first[0] in _CMIS:
        return read_cmis(read, first, _CMIS[first[0]])
    return None
