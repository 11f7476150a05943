"""The BMC as ipmitool reads it through /dev/ipmi0: a `Source`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Optional

from nodevitals.probes.bmc import sensors
from nodevitals.probes.bmc.events import LAST, Entry
from nodevitals.probes.bmc.ipmitool import Ipmitool, fields, parse_log_info, parse_watts
from nodevitals.probes.bmc.parts import LogEvent, LogInfo, Part, PartError
from nodevitals.probes.bmc.state import BmcState

# New entries per run; the others come with the next runs.
MAX_ENTRIES = 32


class IpmiSource:
    """One call at a time; of the event log, what is new since the last run."""

    failed: Optional[PartError] = None
    log: Optional[str] = ""

    def __init__(self, tool: Ipmitool) -> None:
        self._tool = tool
        self._is_empty = False

    def controller(self) -> tuple[str, str]:
        """Its firmware and the number of its manufacturer."""
        found = fields(self._tool.text("mc", "info"))
        if "Firmware Revision" not in found:
            raise PartError("malformed", "ipmitool mc info: no firmware revision")
        return found["Firmware Revision"], found.get("Manufacturer ID", "")

    def log_info(self) -> LogInfo:
        """What `sel info` says."""
        info = parse_log_info(self._tool.text("sel", "info"))
        self._is_empty = info.entries == 0
        return info

    def newest(self, _: BmcState, /) -> BmcState:
        """Up to the last entry, if there is one."""
        return _after(None if self._is_empty else self._tool.entry(LAST))

    def new_entries(self, state: BmcState) -> Iterator[tuple[BmcState, Optional[LogEvent]]]:
        """One call per entry."""
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
        """A BMC without DCMI refuses: there is nothing to read."""
        try:
            return parse_watts(self._tool.text("dcmi", "power", "reading"))
        except PartError as error:
            if error.reason != "no_answer":
                raise
            return None

    def parts(self) -> list[Part]:
        """What all sensors say."""
        found = sensors.parse_sensors(self._tool.sensors())
        if not found:
            raise PartError("malformed", "ipmitool sdr elist all: no sensor")
        return sensors.parts(found)

    def close(self) -> None:
        """Each call has ended."""


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
