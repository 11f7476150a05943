"""Probe `kernel_log`: what the kernel and its drivers have said since boot, counted.

In: /dev/kmsg from where the last run was, over restarts of the agent too, and letters from the
probe `nvidia`: which card has which bus id, and the Xids that NVML told. Out: Xids and SXids with
the one action for each, and the events of `kernel_messages.py`. It has a worker of its own and
asks no driver anything, so that it counts while they hang.
"""

from __future__ import annotations

import time
from collections import Counter
from typing import ClassVar

import msgspec

from nodevitals.config import ProbeSettings
from nodevitals.document import Seconds
from nodevitals.linux.kmsg import Follower, Record
from nodevitals.probe import Absent, Family, Probe, ProbeError, Readings
from nodevitals.probes.common.accelerators import ACTIONS, Action
from nodevitals.probes.kernel_log.events import EVENTS, event_of, suppressed
from nodevitals.probes.kernel_log.xid import ACTIONS as XID_ACTIONS
from nodevitals.probes.kernel_log.xid import (
    RULE_CODES,
    DeviceName,
    KnownDevices,
    ToKernelLog,
    Xid,
    action_of,
    parse_sxid,
    parse_xid,
)

XID_ERRORS = Family(
    name="nodevitals_nvidia_xid_errors_total",
    kind="counter",
    help="GPU errors (Xid) since boot, in the kernel's log or told by NVML, each counted once.",
    labels=("device", "uuid", "xid", "action"),
    closed={"action": ACTIONS},
)
XID_LAST = Family(
    name="nodevitals_nvidia_xid_last_timestamp_seconds",
    kind="gauge",
    help="When the last Xid of this code was told in this boot.",
    labels=("device", "uuid", "xid", "action"),
    closed={"action": ACTIONS},
)
SXID_ERRORS = Family(
    name="nodevitals_nvidia_sxid_errors_total",
    kind="counter",
    help="NVSwitch errors (SXid) in the kernel's log since boot.",
    labels=("device", "pci_bus_id", "sxid", "action"),
    closed={"action": ACTIONS},
)
KERNEL_EVENTS = Family(
    name="nodevitals_kernel_events_total",
    kind="counter",
    help="Messages of the kernel since boot that tell of one of these events.",
    labels=("event",),
    closed={"event": EVENTS},
)
LOST = Family(
    name="nodevitals_kernel_log_lost_total",
    kind="counter",
    help="Records since boot that the kernel had overwritten before they could be read.",
)
SUPPRESSED = Family(
    name="nodevitals_kernel_log_suppressed_total",
    kind="counter",
    help="Messages since boot that the kernel's own rate limits kept out of its log.",
)

# A run ends well within its deadline, whatever the log holds; the next one reads on.
READ_SECONDS = 0.5
RECORDS_A_READ = 1000
# NVML's event and the log's line tell of the same error when they are no further apart: the probe
# nvidia collects events once in its interval.
PAIR_SECONDS = 300.0
MAX_UNPAIRED = 1000
# A card whose name is not known yet: a label set that changed would be two counters.
NAME_SECONDS = 20.0
# One row of the history for the same error of the same device in so long; the counters count all.
ROW_SECONDS = 60.0
MAX_ROWS_REMEMBERED = 500


class KernelLogSettings(ProbeSettings, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which log, and how often: seldom enough to cost nothing, before the buffer is overrun."""

    path: str = "/dev/kmsg"
    interval: Seconds | None = 2.0


class Told(msgspec.Struct, array_like=True):
    """An Xid in the log that NVML has not told yet, and when it was read (monotonic)."""

    bus_id: str
    code: int
    at: float


class Unnamed(msgspec.Struct, array_like=True):
    """Xids of a card whose name is not known yet, and until when it is waited for."""

    xid: Xid
    count: int
    until: float
    last: float


class LastSeen(msgspec.Struct, array_like=True):
    """When a card last told an Xid that asks for this action."""

    bus_id: str
    code: int
    action: Action
    moment: float


class Memory(msgspec.Struct):
    """What must outlive a run, a crash and a restart. Only `devices` outlives a boot."""

    boot_id: str
    sequence: int = -1
    devices: dict[str, DeviceName] = {}
    last_seen: list[LastSeen] = []
    told: list[Told] = []
    heard: list[tuple[str, int]] = []
    unnamed: list[Unnamed] = []
    rows: dict[str, float] = {}


class KernelLogProbe(Probe):
    """The kernel's log."""

    name: ClassVar[str] = "kernel_log"
    families: ClassVar[tuple[Family, ...]] = (
        XID_ERRORS,
        XID_LAST,
        SXID_ERRORS,
        KERNEL_EVENTS,
        LOST,
        SUPPRESSED,
    )
    Settings: ClassVar[type[ProbeSettings]] = KernelLogSettings
    resident: ClassVar[bool] = True
    remembers: ClassVar[bool] = True
    settings: KernelLogSettings
    _follower: Follower | None = None
    _caught_up = False
    """Whether a run has come to the log's end: what is read from then on has just been written."""

    def close(self) -> None:
        """Close the log."""
        if self._follower is not None:
            self._follower.close()

    def run(self, readings: Readings) -> None:
        """Read what is new, then pair it with what NVML told."""
        memory = _recalled(readings, self.host.boot_id())
        for body in readings.received:
            _receive(memory, msgspec.msgpack.decode(body, type=ToKernelLog))
        tally = _Tally(readings, memory, self._caught_up)
        problem: OSError | None = None
        finished = True
        try:
            finished = self._read(memory, tally, readings)
        except OSError as error:
            problem = error
        if finished:
            tally.count_what_only_nvml_told()
            self._caught_up = True
        tally.finish()
        if isinstance(problem, FileNotFoundError) and not memory.devices:
            raise Absent(f"there is no {self.settings.path}")
        readings.carry = msgspec.msgpack.encode(memory)
        if problem is not None:
            raise ProbeError(
                "kernel_log",
                f"{self.settings.path}: {problem.strerror}; reading it takes root or CAP_SYSLOG",
            )

    def _read(self, memory: Memory, tally: _Tally, readings: Readings) -> bool:
        if self._follower is None:
            self._follower = Follower(self.settings.path, memory.sequence)
        follower = self._follower
        finished, until = False, time.monotonic() + READ_SECONDS
        readings.increment(LOST, 0)
        while not finished and time.monotonic() < until:
            records, finished = follower.read(RECORDS_A_READ)
            # All of these now count, or with an error before this line none.
            memory.sequence = follower.sequence
            readings.increment(LOST, follower.lost)
            follower.lost = 0
            for record in records:
                tally.take(record)
        return finished


def _recalled(readings: Readings, boot_id: str) -> Memory:
    memory = readings.recalled(Memory) or Memory(boot_id)
    return memory if memory.boot_id == boot_id else Memory(boot_id, devices=memory.devices)


def _receive(memory: Memory, letter: ToKernelLog) -> None:
    if isinstance(letter, KnownDevices):
        memory.devices = letter.by_bus_id
    else:
        memory.heard = [*memory.heard, *letter.xids][-MAX_UNPAIRED:]


class _Tally:
    """One run's counting."""

    def __init__(self, readings: Readings, memory: Memory, live: bool) -> None:
        self._readings = readings
        self._memory = memory
        self._live = live
        self._now = time.time()
        self._monotonic = time.monotonic()
        # Added up here: a flood would not fit into one result.
        self._xids: Counter[tuple[str, ...]] = Counter()
        self._sxids: Counter[tuple[str, ...]] = Counter()
        self._events: Counter[str] = Counter(dict.fromkeys(EVENTS, 0))
        self._suppressed = 0

    def take(self, record: Record) -> None:
        """Count what a record tells, if anything."""
        text = record.text
        if "Xid (" in text:
            xid = parse_xid(text)
            if xid is not None:
                self._xid(xid, self._time_of(record))
                self._memory.told.append(Told(xid.bus_id, xid.code, self._monotonic))
                return
            sxid = parse_sxid(text)
            if sxid is not None:
                labels = (sxid.switch, sxid.bus_id, str(sxid.code), sxid.action)
                self._sxids[labels] += 1
                self._row(sxid.switch, f"sxid {sxid.code}", sxid.text, self._time_of(record))
                return
        event = event_of(text)
        if event is not None:
            self._events[event] += 1
            self._row("kernel", event, text, self._time_of(record))
        self._suppressed += suppressed(text)

    def count_what_only_nvml_told(self) -> None:
        """The log has been read to its end, so what NVML heard before and stands nowhere in it
        was never logged, or was overwritten, or cannot be read here.
        """
        memory = self._memory
        oldest = self._monotonic - PAIR_SECONDS
        memory.told = [told for told in memory.told if told.at >= oldest]
        for bus_id, code in memory.heard:
            pair = next((t for t in memory.told if (t.bus_id, t.code) == (bus_id, code)), None)
            if pair is not None:
                memory.told.remove(pair)
            else:
                self._xid(Xid(bus_id, code, action_of(code, ""), "told by NVML alone"), self._now)
        memory.heard = []

    def finish(self) -> None:
        """Count the waiting, and tell everything."""
        memory, readings = self._memory, self._readings
        waiting, memory.unnamed = memory.unnamed, []
        for one in waiting:
            if one.xid.bus_id in memory.devices or self._monotonic >= one.until:
                self._count(one.xid, one.count, one.last)
            else:
                memory.unnamed.append(one)
        for name in memory.devices.values():
            for code in RULE_CODES:
                key = (*name, str(code), str(XID_ACTIONS[code]))
                self._xids[key] += 0
        for family, counts in ((XID_ERRORS, self._xids), (SXID_ERRORS, self._sxids)):
            for labels, count in counts.items():
                readings.increment(family, count, *labels)
        for event, count in self._events.items():
            readings.increment(KERNEL_EVENTS, count, event)
        readings.increment(SUPPRESSED, self._suppressed)
        for last in memory.last_seen:
            name = self._name(last.bus_id)
            readings.add(XID_LAST, last.moment, *name, str(last.code), last.action)
        newest = sorted(memory.rows.items(), key=lambda item: item[1])[-MAX_ROWS_REMEMBERED:]
        memory.rows = dict(newest)
        memory.told = memory.told[-MAX_UNPAIRED:]

    def _xid(self, xid: Xid, moment: float) -> None:
        if xid.bus_id in self._memory.devices:
            self._count(xid, 1, moment)
            return
        for one in self._memory.unnamed:
            if (one.xid.bus_id, one.xid.code, one.xid.action) == (xid.bus_id, xid.code, xid.action):
                one.count += 1
                one.last = moment
                return
        if len(self._memory.unnamed) < MAX_UNPAIRED:
            until = self._monotonic + NAME_SECONDS
            self._memory.unnamed.append(Unnamed(xid, 1, until, moment))

    def _count(self, xid: Xid, amount: int, moment: float) -> None:
        name = self._name(xid.bus_id)
        key = (*name, str(xid.code), str(xid.action))
        self._xids[key] += amount
        self._see(LastSeen(xid.bus_id, xid.code, xid.action, moment))
        self._row(name.uuid, f"xid {xid.code}", f"{xid.action}: {xid.text}", moment)

    def _see(self, last: LastSeen) -> None:
        for one in self._memory.last_seen:
            if (one.bus_id, one.code, one.action) == (last.bus_id, last.code, last.action):
                one.moment = last.moment
                return
        self._memory.last_seen.append(last)

    def _name(self, bus_id: str) -> DeviceName:
        return self._memory.devices.get(bus_id, DeviceName("", bus_id))

    def _row(self, device: str, state: str, detail: str, moment: float) -> None:
        key = f"{device} {state}"
        last = self._memory.rows.get(key)
        if last is None or self._monotonic - last >= ROW_SECONDS:
            self._memory.rows[key] = self._monotonic
            self._readings.event(device, state, detail[:200], moment)

    def _time_of(self, record: Record) -> float:
        """When a record was written. The kernel's clock for it drifts from all others by seconds
        a day, so it is asked only for what was not followed.
        """
        age = 0.0 if self._live else max(0.0, self._monotonic - record.seconds)
        return self._now - age
