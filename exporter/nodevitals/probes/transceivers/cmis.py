"""The memory of modules with CMIS: QSFP-DD, OSFP, QSFP112. Pure.

https://www.oiforum.com/technical-work/hot-topics/management/
"""

from __future__ import annotations

from nodevitals.probes.transceivers.module import (
    HIGH,
    Lane,
    Module,
    ReadPage,
    bias,
    check_sum,
    limit,
    power,
    temperature,
    text,
    voltage,
)

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
