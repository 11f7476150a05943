"""The BMC as ipmitool reads it through /dev/ipmi0: a `Source`. No call changes anything.

Entries of the system event log are read as the bytes that the IPMI command Get SEL Entry returns:
`ipmitool raw` prints them. Tables 31-4, 32-1 and 42-3 of the IPMI specification define them, so no
vendor's text is parsed.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from typing import Optional

import msgspec

from nodevitals.linux import tool
from nodevitals.probe import ProbeError
from nodevitals.probes.bmc import sensors
from nodevitals.probes.bmc.parts import BmcState, LogEvent, LogInfo, Part, PartError

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
# Offsets of the sensor-specific events that report a fault. All others, such as the presence of a
# device or a correctable error, report no fault.
_CRITICAL = {
    "processor": (0x0, 0x1, 0x2, 0x3, 0x4, 0x6, 0xB),
    "power_supply": (0x1,),
    "power_unit": (0x5, 0x6),
    "memory": (0x1, 0x2),
    "drive": (0x1, 0x6),
    "bus": (0x1, 0x4, 0x5, 0x8, 0x9, 0xA),
    "slot": (0x0,),
    "battery": (0x1,),
    "board": (0x0, 0x1),  # chip set: its power control failed, or it was too hot
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
    """One entry. `following` is the record ID of the next entry, LAST if there is none; `content`
    has the bytes in hexadecimal; `time` is in seconds since the epoch, 0 if unknown. `kind` is one
    of `families.EVENT_TYPES`, `severity` of `families.SEVERITIES`; '' if it reports no fault.
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
    """The answer to Get SEL Entry; None if the text is no such answer."""
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
        # Smaller numbers count from the start of the BMC; all bits set means that it has no clock.
        time=float(stamp) if 0x20000000 <= stamp < 0xFFFFFFFF else 0.0,
        kind=kind if severity else "",
        severity=severity,
        sensor=body[11],
        offset=body[13] & 0x0F,
    )


def _severity(kind: str, direction_and_type: int, offset: int) -> str:
    """`critical`, `warning`, or '' for an event that reports no fault, such as the end of a
    fault.
    """
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


_RESPONSE = re.compile(r"rsp=0x([0-9a-f]{2})")
_NOT_FOUND = "cb"
_REFUSED = ("permission denied", "operation not permitted")
_SHOWN_CHARACTERS = 160
_REASONS = ("missing", "timeout", "stuck", "start", "too_long")
_PERCENT = re.compile(r"(\d{1,3})%")
_WATTS = re.compile(r"Instantaneous power reading:\s{0,80}(\d{1,7})\s{1,8}Watts")
_NUMBER = re.compile(r"\d{1,8}")


class Ipmitool:
    """Calls ipmitool: one call at a time, and none after the end of the run."""

    def __init__(self, program: str, until: float) -> None:
        self._program = program
        self._until = until

    def text(self, *arguments: str) -> str:
        """The output of a call. Raises PartError, also if the call fails."""
        output = self._run(*arguments)
        if output.status != 0:
            raise _failed(arguments, output.text)
        return output.text

    def sensors(self) -> str:
        """The output for all sensors, also if the call failed for one of hundreds, as on some
        BMCs.
        """
        output = self._run("sdr", "elist", "all")
        if output.status != 0 and "|" not in output.text:
            raise _failed(("sdr", "elist", "all"), output.text)
        return output.text

    def entry(self, record: int) -> Optional[Entry]:
        """The entry with this record ID; None if there is none. `sel list` is not used: it reads
        all entries from the first one on at each call, even to print the last ten.
        """
        low, high = f"0x{record & 0xFF:02x}", f"0x{record >> 8:02x}"
        arguments = ("raw", "0x0a", "0x43", "0x00", "0x00", low, high, "0x00", "0xff")
        output = self._run(*arguments)
        if output.status != 0:
            response = _RESPONSE.search(output.text)
            if response is not None and response[1] == _NOT_FOUND:
                return None
            raise _failed(arguments, output.text)
        entry = parse_entry(output.text)
        if entry is None:
            raise PartError("malformed", f"entry {record:04x}: {_shown(output.text)}")
        return entry

    def _run(self, *arguments: str) -> tool.Output:
        left = self._until - time.monotonic()
        if left <= 0:
            raise PartError("timeout", f"no time left for ipmitool {' '.join(arguments)}")
        try:
            return tool.run((self._program, "-I", "open", *arguments), left)
        except ProbeError as error:
            reason = error.reason if error.reason in _REASONS else "no_answer"
            raise PartError(reason, error.message) from None


def _failed(arguments: tuple[str, ...], text: str) -> PartError:
    refused = any(words in text.lower() for words in _REFUSED)
    what = f"ipmitool {' '.join(arguments)}: {_shown(text)}"
    return PartError("permission" if refused else "no_answer", what)


def _shown(text: str) -> str:
    return repr(" ".join(text[: 4 * _SHOWN_CHARACTERS].split())[:_SHOWN_CHARACTERS])


def fields(text: str) -> dict[str, str]:
    """The values of lines `KEY : VALUE`, by key."""
    pairs = (line[:512].partition(":") for line in text.splitlines())
    return {key.strip(): value.strip() for key, colon, value in pairs if colon}


def parse_log_info(text: str) -> LogInfo:
    """The output of `sel info`."""
    values = fields(text)
    entries, used = values.get("Entries", ""), _PERCENT.fullmatch(values.get("Percent Used", ""))
    share = None if used is None else int(used[1]) / 100
    return LogInfo(
        int(entries) if _NUMBER.fullmatch(entries) else None,
        share if share is not None and share <= 1 else None,
        {"true": True, "false": False}.get(values.get("Overflow", "")),
    )


def parse_watts(text: str) -> Optional[float]:
    """Watts in the output of `dcmi power reading`; None if the BMC does not measure."""
    match = _WATTS.search(text)
    return float(match[1]) if match is not None and int(match[1]) > 0 else None


# New entries per run; the others come with the next runs.
MAX_ENTRIES = 32


class IpmiSource:
    """Reads the BMC, one call at a time; of the event log, only the new entries."""

    failed: Optional[PartError] = None
    log: Optional[str] = ""

    def __init__(self, tool: Ipmitool) -> None:
        self._tool = tool
        self._is_empty = False

    def controller(self) -> tuple[str, str]:
        """Firmware of the BMC, and the number of its manufacturer."""
        values = fields(self._tool.text("mc", "info"))
        if "Firmware Revision" not in values:
            raise PartError("malformed", "ipmitool mc info: no firmware revision")
        return values["Firmware Revision"], values.get("Manufacturer ID", "")

    def log_info(self) -> LogInfo:
        """State of the event log, by `sel info`."""
        info = parse_log_info(self._tool.text("sel", "info"))
        self._is_empty = info.entries == 0
        return info

    def newest(self, _: BmcState, /) -> BmcState:
        """The state after the last entry, if there is one."""
        return _after(None if self._is_empty else self._tool.entry(LAST))

    def new_entries(self, state: BmcState) -> Iterator[tuple[BmcState, Optional[LogEvent]]]:
        """The new entries; each takes one call."""
        following = 0
        if state.content:
            known = self._tool.entry(state.record)
            if known is not None and known.content == state.content:
                following = known.following
        for _ in range(MAX_ENTRIES):
            entry = None if following == LAST else self._tool.entry(following)
            if entry is None:
                return
            yield _after(entry), _event(entry)
            if entry.following in (following, entry.record):
                return  # a list that leads to itself
            following = entry.following

    def power(self) -> Optional[float]:
        """Watts; None for a BMC without DCMI, which refuses the call."""
        try:
            return parse_watts(self._tool.text("dcmi", "power", "reading"))
        except PartError as error:
            if error.reason != "no_answer":
                raise
            return None

    def parts(self) -> list[Part]:
        """The parts that the sensors report."""
        read = sensors.parse_sensors(self._tool.sensors())
        if not read:
            raise PartError("malformed", "ipmitool sdr elist all: no sensor")
        return sensors.parts(read)

    def close(self) -> None:
        """Nothing to close: each call has ended."""


def _after(entry: Optional[Entry]) -> BmcState:
    if entry is None:
        return BmcState(started=True)
    return BmcState(started=True, record=entry.record, content=entry.content)


def _event(entry: Entry) -> Optional[LogEvent]:
    if not entry.severity:
        return None
    return LogEvent(
        kind=entry.kind,
        severity=entry.severity,
        time=entry.time,
        detail=f"event of sensor 0x{entry.sensor:02x}, offset {entry.offset}",
    )
