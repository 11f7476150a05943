"""Parses what `mlxlink --json` prints about a port. Pure.

A value is `54 [-5..75]`, of several lanes `1.8,1.9,2.2,1.9 [-10.4..6]`, or `N/A`; lists are
`{"values": [...]}`. A copper cable without sensors reports `0 [0..0]`.
"""

from __future__ import annotations

import math
import re
from typing import Any, Optional

import msgspec

from nodevitals.probes.transceivers.module import Lane, Module

# Below this power, a sensor detects no light.
_DARK_DBM = -40.0
_MAX_DBM = 60.0
_MAX_LANES = 16
_MAX_TEXT = 64
_NUMBER = r"-?[0-9]{1,9}(?:\.[0-9]{1,9})?"
_VALUES = re.compile(
    rf"({_NUMBER}(?:,{_NUMBER})*)[A-Za-z ]*(?:\[({_NUMBER})\.\.({_NUMBER})\])?.*", re.DOTALL
)


class Printed(msgspec.Struct, frozen=True):
    """The module, None without one, and the errors since the counters were cleared."""

    module: Optional[Module] = None
    raw_errors: tuple[int, ...] = ()
    effective_errors: Optional[int] = None


def parse_mlxlink(output: str) -> Printed:
    """Parse an output. Raises ValueError if it is not an output of mlxlink."""
    try:
        tree = msgspec.json.decode(output.encode())
        printed = tree["result"]["output"]
        module, counters = printed.get("Module Info"), printed.get("Physical Counters and BER Info")
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise ValueError(f"not the JSON of mlxlink: {error}") from None
    counts = counters if isinstance(counters, dict) else {}
    raw = [_count(count) for count in _list(counts.get("Raw Physical Errors Per Lane"))]
    return Printed(
        _module(module) if isinstance(module, dict) else None,
        tuple(count for count in raw if count is not None) if None not in raw else (),
        _count(counts.get("Effective Physical Errors")),
    )


def _module(info: dict[str, Any]) -> Module | None:
    kind, manufacturer = _text(info.get("Identifier")), _text(info.get("Vendor Name"))
    part_number = _text(info.get("Vendor Part Number"))
    if not (manufacturer or part_number):
        return None
    copper = "copper" in _text(info.get("Cable Type")).lower()
    known = Module(
        kind=kind,
        copper=copper,
        manufacturer=manufacturer,
        part_number=part_number,
        serial=_text(info.get("Vendor Serial Number")),
    )
    return known if copper else _with_sensors(known, info)


def _with_sensors(known: Module, info: dict[str, Any]) -> Module:
    temperatures, _, high = _values(info.get("Temperature [C]"))
    millivolts, _, _ = _values(info.get("Voltage [mV]"))
    if not millivolts or not millivolts[0]:
        return known
    received, receive_low, _ = _values(info.get("Rx Power Current [dBm]"))
    sent, transmit_low, _ = _values(info.get("Tx Power Current [dBm]"))
    currents, _, _ = _values(info.get("Bias Current [mA]"))
    return msgspec.structs.replace(
        known,
        temperature_celsius=temperatures[0] if temperatures else None,
        voltage_volts=millivolts[0] / 1e3,
        lanes=tuple(
            Lane(
                lane + 1,
                _watts(received[lane]) if lane < len(received) else None,
                _watts(sent[lane]) if lane < len(sent) else None,
                currents[lane] / 1e3 if lane < len(currents) else None,
            )
            for lane in range(max(len(received), len(sent), len(currents)))
        ),
        temperature_high_celsius=high or None,
        receive_low_watts=_watts(receive_low) or None,
        transmit_low_watts=_watts(transmit_low) or None,
    )


def _values(text: object) -> tuple[list[float], float | None, float | None]:
    """The values of the lanes, and their lower and upper limit."""
    match = _VALUES.fullmatch(text.strip()) if isinstance(text, str) else None
    if match is None:
        return [], None, None
    values = [float(number) for number in match[1].split(",")][:_MAX_LANES]
    if match[2] is None or match[2] == match[3]:
        return values, None, None
    return values, float(match[2]), float(match[3])


def _watts(dbm: float | None) -> float | None:
    if dbm is None or dbm > _MAX_DBM:
        return None
    return 0.0 if dbm <= _DARK_DBM else math.pow(10, dbm / 10) / 1e3


def _list(value: object) -> list[object]:
    if isinstance(value, dict):
        value = value.get("values")
    if isinstance(value, str):
        value = value.split(",")
    return value[:_MAX_LANES] if isinstance(value, list) else []


def _count(value: object) -> int | None:
    text = str(value).strip() if isinstance(value, (int, str)) else ""
    return int(text) if text.isascii() and text.isdigit() and len(text) <= 20 else None


def _text(value: object) -> str:
    fits = isinstance(value, str) and len(value) <= _MAX_TEXT and value.isprintable()
    text = str(value).strip() if fits else ""
    return "" if text == "N/A" or not text.isascii() else text
