"""Probe `bmc`: power supplies, fans, temperatures and the system event log of the node's own BMC.

In: ipmitool through /dev/ipmi0, or Redfish over HTTPS. Out: `nodevitals_bmc_*`. Nothing on the BMC
is changed; one call at a time, all within one run's timeout; of the event log, what is new since
the last run.
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable

import msgspec

from nodevitals.probe import Absent, Probe, ProbeError, Readings
from nodevitals.probes.bmc import families, parts
from nodevitals.probes.bmc.ipmi import IpmiSource, Ipmitool
from nodevitals.probes.bmc.parts import BmcState, PartError, Source
from nodevitals.probes.bmc.settings import BmcSettings

_DEVICES = ("ipmi0", "ipmi/0", "ipmidev/0")
# Share of the run's time; the rest is for the engine.
_SHARE = 0.9
# After a longer time without a run, the next run counts the new entries, not this one: the rule
# looks for an increase within an hour and needs a sample from before the increase.
MAX_GAP_SECONDS = 1800.0


class BmcProbe(Probe):
    """The node's BMC: power supplies, fans, temperatures, power, batteries, system event log."""

    name = "bmc"
    families = tuple(families.metrics)
    Settings = BmcSettings
    State = BmcState
    persistent = True
    settings: BmcSettings
    state: BmcState

    def run(self, readings: Readings) -> None:
        """Read all parts, the quick ones first."""
        source = self._source(time.monotonic() + _SHARE * self.timing.timeout_seconds)
        for kind in families.EVENT_TYPES:
            for severity in families.SEVERITIES:
                readings.increment(families.EVENTS, 0, kind, severity)
        try:
            up = self._part("controller", self._read_controller, source, readings)
            readings.add(families.UP, up)
            if not up:
                return
            self._part("log", self._read_log, source, readings)
            self._part("power", self._read_power, source, readings)
            readings.report()
            self._part("sensors", self._read_parts, source, readings)
        finally:
            source.close()

    def _source(self, until: float) -> Source:
        """Without a device or program, raises Absent, or ProbeError if the probe is required."""
        if self.settings.redfish is not None:
            # Imported here: most nodes do not need it.
            from nodevitals.probes.bmc.redfish import RedfishSource

            return RedfishSource(self.settings.redfish, until)
        directory = self.settings.device_directory
        if not any(os.path.exists(os.path.join(directory, name)) for name in _DEVICES):
            self._absent("device_missing", f"no ipmi0 in {directory}: modprobe ipmi_devintf")
        if shutil.which(self.settings.ipmitool) is None:
            self._absent("missing", f"{self.settings.ipmitool}: not found: install ipmitool")
        return IpmiSource(Ipmitool(self.settings.ipmitool, until))

    def _absent(self, reason: str, text: str) -> None:
        if self.settings.required:
            raise ProbeError(reason, text)
        raise Absent(text)

    def _part(
        self,
        part: str,
        read: Callable[[Source, Readings], None],
        source: Source,
        readings: Readings,
    ) -> bool:
        """Whether this part could be read. A failure becomes a reason, not a fault of the node."""
        readings.at("BMC", part)
        source.failed = failed = None
        try:
            read(source, readings)
        except PartError as error:
            if error.reason in ("stuck", "missing"):
                raise ProbeError(error.reason, error.message) from None
            failed = error
        shown = failed or source.failed
        if shown is not None:
            readings.add(families.UNREADABLE, 1, part, shown.reason)
            readings.note(f"{part}: {shown.message}", warning=True)
        return failed is None

    def _read_controller(self, source: Source, readings: Readings) -> None:
        readings.add(families.INFO, 1, *(_label(text) for text in source.controller()))

    def _read_power(self, source: Source, readings: Readings) -> None:
        readings.add(families.POWER, source.power())

    def _read_parts(self, source: Source, readings: Readings) -> None:
        parts.report(source.parts(), self.settings.exclude, readings)

    def _read_log(self, source: Source, readings: Readings) -> None:
        info = source.log_info()
        readings.add(families.LOG_ENTRIES, info.entries)
        readings.add(families.LOG_USED, info.used)
        readings.add(families.LOG_OVERFLOW, info.overflow)
        if source.log is None:
            return
        if not self.state.started or self.state.source != source.log:
            # Entries from before the first run are old and not counted.
            self._remember(source.newest(self.state))
            return
        if self._is_after_gap():
            return
        for state, event in source.new_entries(self.state):
            self._remember(state)
            if event is not None:
                readings.increment(families.EVENTS, 1, event.kind, event.severity)
                readings.event("BMC", f"{event.kind}_{event.severity}", event.detail, event.time)

    def _is_after_gap(self) -> bool:
        """Whether the node or the agent was off for long; the counters are then exposed
        unchanged.
        """
        now = time.time()
        gap, self.state.read_at = now - self.state.read_at, now
        return not 0 <= gap <= MAX_GAP_SECONDS

    def _remember(self, state: BmcState) -> None:
        self.state = msgspec.structs.replace(state, read_at=time.time())


def _label(text: str) -> str:
    return text[:64] if text.isascii() and text.isprintable() else ""
