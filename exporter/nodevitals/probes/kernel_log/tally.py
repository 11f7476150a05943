"""The counts of one run: records of the log and Xids from NVML in, increments of the counters and
rows of the history out. It does no I/O and reads no clock.

Driver events, in the order of the log, also become times, and whether each NIC that has failed in
this boot has recovered.
"""

from __future__ import annotations

from collections import Counter

from nodevitals.linux.kmsg import Record
from nodevitals.probe import Readings
from nodevitals.probes.common.device_names import DeviceName
from nodevitals.probes.kernel_log.families import (
    DEVICE_EVENT_LAST,
    DEVICE_EVENTS,
    EVENTS,
    KERNEL_EVENTS,
    NIC_FAILED,
    SUPPRESSED,
    SXID_ERRORS,
    SXID_LAST,
    XID_ERRORS,
    XID_LAST,
    event_of,
    suppressed,
)
from nodevitals.probes.kernel_log.lines import (
    FAILURES,
    RECOVERIES,
    STARTED,
    DriverEvent,
    OomKillTally,
    follow,
    parse_driver_event,
    parse_filesystem_event,
)
from nodevitals.probes.kernel_log.state import (
    MAX_WAITING_XIDS,
    KernelLogState,
    LastDeviceEvent,
    LastSxid,
    LastXid,
    NicState,
    UnnamedXid,
    UnpairedXid,
)
from nodevitals.probes.kernel_log.xid import (
    RULE_CODES,
    XID_ACTIONS,
    Sxid,
    Xid,
    action_of,
    parse_sxid,
    parse_xid,
)
from nodevitals.probes.kubernetes.messages import send_oom_kills
from nodevitals.probes.services.messages import PROBE as SERVICES
from nodevitals.probes.services.messages import StoppedFilesystems

# Virtual functions of one NIC can be hundreds.
MAX_SERIES = 500


class DeviceTally:
    """Counts for one run."""

    def __init__(self, state: KernelLogState) -> None:
        self._state = state
        self._counts: Counter[DriverEvent] = Counter()
        self._last = {
            DriverEvent(event.driver, event.pci_bus_id, event.event): event
            for event in state.device_events
        }

    def add(self, event: DriverEvent, time: float) -> bool:
        """Count an event. Returns whether it is an event, not only the end of a failure."""
        self._set_failed(event)
        if event.event == STARTED or (event not in self._last and len(self._last) >= MAX_SERIES):
            return False
        self._counts[event] += 1
        self._last[event] = LastDeviceEvent(*event, time)
        return True

    def _set_failed(self, event: DriverEvent) -> None:
        if not event.pci_bus_id or event.driver == "nvidia":
            return
        known = [nic for nic in self._state.nics if nic.pci_bus_id == event.pci_bus_id]
        if event.event in RECOVERIES:
            for entry in known:
                entry.failed = False
        elif event.event in FAILURES and known:
            known[0].failed = True
        elif event.event in FAILURES and len(self._state.nics) < MAX_SERIES:
            self._state.nics.append(NicState(event.driver, event.pci_bus_id, failed=True))

    def report(self, readings: Readings) -> None:
        """Report everything, and keep what the next run needs."""
        self._state.device_events = list(self._last.values())
        for event, count in self._counts.items():
            readings.increment(DEVICE_EVENTS, count, event.pci_bus_id, event.driver, event.event)
        for last in self._state.device_events:
            labels = (last.pci_bus_id, last.driver, last.event)
            readings.add(DEVICE_EVENT_LAST, last.time, *labels)
        for nic in self._state.nics:
            readings.add(NIC_FAILED, nic.failed, nic.pci_bus_id, nic.driver)


# NVML's event and the log's record report the same error when they are no further apart: the
# probe nvidia collects events once per interval.
PAIR_SECONDS = 300.0
# How long an Xid waits for the name of its GPU: changed labels would create a second counter.
NAME_SECONDS = 20.0
# The history gets at most one row per device and event in this time; the counters count all.
ROW_SECONDS = 60.0
MAX_ROW_TIMES = 500
# An older kill from before the first start of the agent notifies no owner.
OLD_KILL_SECONDS = 900.0
MAX_DETAIL_CHARACTERS = 200


class Tally:
    """Counts for one run, which started at `now` (Unix time) and `monotonic` (seconds since boot).
    `live` means that the records were written since the last run, not before the first.
    """

    def __init__(
        self,
        state: KernelLogState,
        readings: Readings,
        *,
        now: float,
        monotonic: float,
        live: bool,
    ) -> None:
        state.follow_clock(now - monotonic)
        self._state = state
        self._readings = readings
        self._now = now
        self._monotonic = monotonic
        self._live = live
        # Summed here: the single increments of a flood would not fit into one result.
        self._xids: Counter[tuple[str, ...]] = Counter()
        self._sxids: Counter[tuple[str, ...]] = Counter()
        self._events: Counter[str] = Counter(dict.fromkeys(EVENTS, 0))
        self._suppressed = 0
        self._is_read = True
        # The first run in a boot may read the log of many days.
        since = monotonic - OLD_KILL_SECONDS if state.sequence < 0 else 0.0
        self._oom_kills = OomKillTally(since)
        self._devices = DeviceTally(state)

    def add_record(self, record: Record) -> None:
        """Count the Xid, SXid, driver event or event that a record reports, if any."""
        text, time = record.text, self._time_of(record)
        if "Xid (" in text:
            xid = parse_xid(text)
            if xid is not None:
                self._add_xid(xid, time)
                self._state.unpaired.append(UnpairedXid(xid.bus_id, xid.code, self._monotonic))
                return
            sxid = parse_sxid(text)
            if sxid is not None:
                self._add_sxid(sxid, time)
                return
        of_device = parse_driver_event(text)
        if of_device is not None:
            if self._devices.add(of_device, time):
                name = of_device.pci_bus_id or of_device.driver
                self._add_row(name, of_device.event, text, time)
            return
        of_filesystem = parse_filesystem_event(text)
        if of_filesystem is not None:
            follow(self._state.stopped, of_filesystem)
        event = event_of(text)
        if event is not None:
            self._events[event] += 1
            self._add_row("kernel", event, text, time)
            if event == "oom_kill":
                self._oom_kills.add_process(record.seconds)
        else:
            self._oom_kills.add(text, record.seconds)
        self._suppressed += suppressed(text)

    def add_xids_only_in_nvml(self) -> None:
        """Count the Xids from NVML that have no record in the log. Call this after the log has been
        read to its end: such an Xid was not logged, was overwritten, or cannot be read here.
        """
        state = self._state
        oldest = self._monotonic - PAIR_SECONDS
        state.unpaired = [xid for xid in state.unpaired if xid.read_at >= oldest]
        for bus_id, code in state.from_nvml:
            pair = next((x for x in state.unpaired if (x.bus_id, x.code) == (bus_id, code)), None)
            if pair is not None:
                state.unpaired.remove(pair)
            else:
                action = action_of(code, "")
                self._add_xid(Xid(bus_id, code, action, "reported by NVML only"), self._now)
        state.from_nvml = []

    def send_filesystems(self) -> None:
        """Send the file systems that accept no writes. Call this after the log has been read to its
        end: a later record may report a new mount.
        """
        self._readings.send(SERVICES, StoppedFilesystems(list(self._state.stopped)))

    def leave_out_events(self) -> None:
        """Leave out events without a count: the log cannot be read to its end, so 0 would be
        wrong.
        """
        self._events = +self._events  # drops the zero counts
        self._is_read = False

    def finish(self) -> None:
        """Count the Xids that waited for a name, and report everything."""
        self._add_unnamed()
        self._report_counts()
        for last in self._state.last_seen:
            name = self._name(last.bus_id)
            self._readings.add(XID_LAST, last.time, *name, str(last.code), last.action)
        for sxid in self._state.last_sxids:
            labels = (sxid.switch, sxid.bus_id, str(sxid.code), sxid.action)
            self._readings.add(SXID_LAST, sxid.time, *labels)
        newest = sorted(self._state.rows.items(), key=lambda item: item[1])[-MAX_ROW_TIMES:]
        self._state.rows = dict(newest)
        self._state.unpaired = self._state.unpaired[-MAX_WAITING_XIDS:]
        send_oom_kills(self._readings, self._oom_kills.kills)

    def _add_unnamed(self) -> None:
        waiting, self._state.unnamed = self._state.unnamed, []
        for unnamed in waiting:
            if unnamed.xid.bus_id in self._state.devices or self._monotonic >= unnamed.until:
                self._count_xid(unnamed.xid, unnamed.count, unnamed.last)
            else:
                self._state.unnamed.append(unnamed)

    def _report_counts(self) -> None:
        for name in self._state.devices.values():
            for code in RULE_CODES:
                key = (*name, str(code), str(XID_ACTIONS[code]))
                self._xids[key] += 0  # a counter starts at 0 before the first event
        for family, counts in ((XID_ERRORS, self._xids), (SXID_ERRORS, self._sxids)):
            for labels, count in counts.items():
                self._readings.increment(family, count, *labels)
        for event, count in self._events.items():
            self._readings.increment(KERNEL_EVENTS, count, event)
        if self._is_read or self._suppressed:
            self._readings.increment(SUPPRESSED, self._suppressed)
        self._devices.report(self._readings)

    def _add_xid(self, xid: Xid, time: float) -> None:
        """Count an Xid, or let it wait for the name of its GPU."""
        if xid.bus_id in self._state.devices:
            self._count_xid(xid, 1, time)
            return
        key = (xid.bus_id, xid.code, xid.action)
        for unnamed in self._state.unnamed:
            if (unnamed.xid.bus_id, unnamed.xid.code, unnamed.xid.action) == key:
                unnamed.count += 1
                unnamed.last = time
                return
        if len(self._state.unnamed) < MAX_WAITING_XIDS:
            until = self._monotonic + NAME_SECONDS
            self._state.unnamed.append(UnnamedXid(xid, 1, until, time))

    def _count_xid(self, xid: Xid, amount: int, time: float) -> None:
        name = self._name(xid.bus_id)
        key = (*name, str(xid.code), str(xid.action))
        self._xids[key] += amount
        self._set_last(LastXid(xid.bus_id, xid.code, xid.action, time))
        self._add_row(name.uuid, f"xid {xid.code}", f"{xid.action}: {xid.text}", time)

    def _set_last(self, last: LastXid) -> None:
        for seen in self._state.last_seen:
            if (seen.bus_id, seen.code, seen.action) == (last.bus_id, last.code, last.action):
                seen.time = last.time
                return
        self._state.last_seen.append(last)

    def _add_sxid(self, sxid: Sxid, time: float) -> None:
        self._sxids[(sxid.switch, sxid.bus_id, str(sxid.code), sxid.action)] += 1
        last = LastSxid(sxid.switch, sxid.bus_id, sxid.code, sxid.action, time)
        same = (last.switch, last.bus_id, last.code, last.action)
        kept = self._state.last_sxids
        kept[:] = [x for x in kept if (x.switch, x.bus_id, x.code, x.action) != same] + [last]
        self._add_row(sxid.switch, f"sxid {sxid.code}", sxid.text, time)

    def _name(self, bus_id: str) -> DeviceName:
        return self._state.devices.get(bus_id, DeviceName("", bus_id))

    def _add_row(self, device: str, event: str, detail: str, time: float) -> None:
        key = f"{device} {event}"
        last = self._state.rows.get(key)
        if last is None or self._monotonic - last >= ROW_SECONDS:
            self._state.rows[key] = self._monotonic
            self._readings.event(device, event, detail[:MAX_DETAIL_CHARACTERS], time)

    def _time_of(self, record: Record) -> float:
        """Unix time of a record. The kernel's clock for records drifts from other clocks by seconds
        per day, so it is used only for records from before the first run.
        """
        age = 0.0 if self._live else max(0.0, self._monotonic - record.seconds)
        return self._now - age
