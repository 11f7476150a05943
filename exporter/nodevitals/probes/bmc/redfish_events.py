"""Entries of an event log in Redfish (LogEntry of DMTF DSP0268).

In: decoded JSON. Out: `LogEntry`. The severity is the BMC's own; the kind that of the sensor's
type. An entry without one, as many services' own formats, is of kind `other`.
"""

from __future__ import annotations

import re
from calendar import timegm
from typing import Optional

import msgspec

from nodevitals.probes.bmc.parts import LogEvent
from nodevitals.probes.bmc.redfish_json import Json, number, path, text

_TIME = re.compile(
    r"(\d{4})-(\d\d)-(\d\d)T(\d\d):(\d\d):(\d\d)(?:\.\d{1,9})?(?:Z|([+-])(\d\d):?(\d\d))",
    re.ASCII,
)
# Earlier ones are of a clock that was not set.
_EARLIEST = 0x20000000
# Types of sensors, without case and punctuation: services spell them differently.
_KINDS = {
    "temperature": "temperature",
    "voltage": "voltage",
    "current": "voltage",
    "fan": "fan",
    "coolingdevice": "fan",
    "processor": "processor",
    "powersupplyconverter": "power_supply",
    "powersupply": "power_supply",
    "powerunit": "power_unit",
    "memory": "memory",
    "driveslotbay": "drive",
    "driveslot": "drive",
    "criticalinterrupt": "bus",
    "chipset": "board",
    "moduleboard": "board",
    "slotconnector": "slot",
    "battery": "battery",
}
_SEVERITIES = {"Critical": "critical", "Warning": "warning"}
# Words of an EntryCode that is the end of a fault, or its absence.
_END = re.compile(
    r"deassert|not exceeded|performance met|transition to ok|transition to (?:running|on ?line)"
    r"|fully redundant|from more severe"
    r"|lower [a-z -]{1,20}going high|upper [a-z -]{1,20}going low",
    re.IGNORECASE,
)
_OTHER = re.compile(r"[^a-z]")


class LogEntry(msgspec.Struct, frozen=True, kw_only=True):
    """One entry. `identity` is that of no other one, also after the log was cleared; `number` that
    of its Id, None where it is none. `event` is None where it reports no fault.
    """

    identity: str
    path: str
    number: Optional[int]
    time: float
    event: Optional[LogEvent]


def parse_entry(document: Json) -> LogEntry:
    """A member of the collection of entries."""
    name, message = text(document, "Id"), text(document, "MessageId")
    time = parse_time(text(document, "Created"))
    where = path(document.get("@odata.id"))
    return LogEntry(
        identity=f"{name[:64]} {time:.0f} {message[:64]}",
        path=where,
        number=int(name) if name.isascii() and name.isdecimal() and len(name) < 18 else None,
        time=time,
        event=_event(document, time),
    )


def _event(document: Json, time: float) -> Optional[LogEvent]:
    severity = _SEVERITIES.get(text(document, "Severity"), "")
    if not severity or _END.search(text(document, "EntryCode")):
        return None
    sensor = text(document, "SensorType")
    kind = _KINDS.get(_OTHER.sub("", sensor.lower()), "") if sensor else "other"
    if not kind:
        return None
    code = number(document, "SensorNumber")
    what = f"sensor 0x{int(code):02x}" if code is not None else text(document, "MessageId")[:64]
    return LogEvent(kind=kind, severity=severity, time=time, detail=f"event of {what or 'no name'}")


def parse_time(created: str) -> float:
    """Seconds since the epoch; 0 where unknown: without a time zone, or of a clock not set."""
    match = _TIME.fullmatch(created)
    if match is None:
        return 0.0
    year, month, day, hour, minute, second = (int(one) for one in match.groups()[:6])
    if not (
        year >= 1970
        and 1 <= month <= 12
        and 1 <= day <= 31
        and hour < 24
        and minute < 60
        and second < 61
    ):
        return 0.0
    zone = int(match[8]) * 3600 + int(match[9]) * 60 if match[7] else 0
    seconds = timegm((year, month, day, hour, minute, second)) - (
        -zone if match[7] == "-" else zone
    )
    return float(seconds) if _EARLIEST <= seconds < 0xFFFFFFFF else 0.0


def is_newest_first(first: LogEntry, last: LogEntry) -> bool:
    """Whether a page that begins and ends so has its newest entry first."""
    if first.time and last.time and first.time != last.time:
        return first.time > last.time
    if first.number is not None and last.number is not None:
        return first.number > last.number
    return False
