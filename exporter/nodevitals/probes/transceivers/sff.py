"""The memory of SFP modules (SFF-8472) and of QSFP modules (SFF-8636). Pure.

https://members.snia.org/document/dl/25916, https://members.snia.org/document/dl/26418
"""

from __future__ import annotations

from nodevitals.probes.transceivers.module import (
    HIGH,
    LOW,
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
