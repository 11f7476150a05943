"""Entries of the system event log, as the IPMI command Get SEL Entry returns them.

In: the bytes that `ipmitool raw` prints. Out: `Entry`, and the fault that it reports. The bytes are
those of the IPMI specification, tables 31-4, 32-1 and 42-3, so that no text of a vendor is read.
"""

from __future__ import annotations

import re
from typing import Optional

import msgspec

LAST = 0xFFFF
_BYTES = re.compile(r"[0-9a-f]{2}(?: [0-9a-f]{2}){17}")
_STANDARD = 0x02
_THRESHOLD, _SEVERITY, _PREDICTIVE, _SPECIFIC = 0x01, 0x07, 0x04, 0x6F
_TYPES = {
    0x01: "temperature",
    0x02: "voltage",
    0x03: "voltage",
    0x04: "fan",
    0x07: "processor",
    0x08: "power_supply",
    0x09: "power_unit",
    0x0C: "memory",
    0x0D: "drive",
    0x13: "bus",
    0x19: "board",
    0x21: "slot",
    0x29: "battery",
}
# Offsets of the sensor-specific events that report a fault. All others, as the presence of a device
# or a correctable error, report none.
_CRITICAL = {
    "processor": (0x0, 0x1, 0x2, 0x3, 0x4, 0x6, 0xB),
    "power_supply": (0x1,),
    "power_unit": (0x5, 0x6),
    "memory": (0x1, 0x2),
    "drive": (0x1, 0x6),
    "bus": (0x1, 0x4, 0x5, 0x8, 0x9, 0xA),
    "slot": (0x0,),
    "battery": (0x1,),
    "board": (0x0, 0x1),  # of a chip set: its power control failed, or it was too hot
}
_WARNING = {
    "processor": (0x5, 0xA),
    "power_supply": (0x2, 0x3, 0x4, 0x5, 0x6),
    "power_unit": (0x4,),
    "memory": (0x3, 0x4, 0x5, 0xA),
    "drive": (0x2, 0x5),
    "bus": (0xB,),
    "battery": (0x0,),
}


class Entry(msgspec.Struct, frozen=True, kw_only=True):
    """One entry. `following` is the record ID of the next one, LAST where there is none; `content`
    its bytes in hexadecimal; `time` seconds since the epoch, 0 where unknown. `kind` is one of
    `families.EVENT_TYPES`, `severity` of `families.SEVERITIES`; '' where it reports no fault.
    """

    record: int
    following: int
    content: str
    time: float
    kind: str
    severity: str
    sensor: int
    offset: int


def parse_entry(text: str) -> Optional[Entry]:
    """The answer to Get SEL Entry; None where it is none."""
    words = " ".join(text.split()).lower()
    if not _BYTES.fullmatch(words):
        return None
    data = bytes.fromhex(words)
    body = data[2:]
    kind, severity = "", ""
    if body[2] == _STANDARD:
        kind = _TYPES.get(body[10], "")
        severity = _severity(kind, body[12], body[13] & 0x0F)
    stamp = int.from_bytes(body[3:7], "little")
    return Entry(
        record=int.from_bytes(body[0:2], "little"),
        following=int.from_bytes(data[0:2], "little"),
        content=body.hex(),
        # Smaller ones are seconds since the BMC started, and all ones mean that it has no clock.
        time=float(stamp) if 0x20000000 <= stamp < 0xFFFFFFFF else 0.0,
        kind=kind if severity else "",
        severity=severity,
        sensor=body[11],
        offset=body[13] & 0x0F,
    )


def _severity(kind: str, direction_and_type: int, offset: int) -> str:
    """`critical`, `warning`, or '' for what reports no fault, as the end of one."""
    event = direction_and_type & 0x7F
    if not kind or direction_and_type & 0x80:
        return ""
    if event == _THRESHOLD:
        return _one_of(offset, (0x2, 0x4, 0x9, 0xB), (0x0, 0x7))
    if event == _SEVERITY:
        return _one_of(offset, (0x2, 0x3, 0x5, 0x6), (0x1, 0x4))
    if event == _PREDICTIVE:
        return _one_of(offset, (), (0x1,))
    if event != _SPECIFIC:
        return ""
    return _one_of(offset, _CRITICAL.get(kind, ()), _WARNING.get(kind, ()))


def _one_of(offset: int, critical: tuple[int, ...], warning: tuple[int, ...]) -> str:
    return "critical" if offset in critical else "warning" if offset in warning else ""
