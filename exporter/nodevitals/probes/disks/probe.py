"""Probe `disks`: local disks, their I/O and their health; md arrays and device-mapper devices.

In: /sys/block and /sys/class/nvme, NVMe's health page, smartctl. Out: `nodevitals_disk_*` and
`nodevitals_disks_*`. Two targets: `devices` reads sysfs only, so that no disk that hangs holds it
up; `health` asks the disks, in a process that lives on only while a call is in flight.
"""

from __future__ import annotations

import os
import time
import zlib
from collections.abc import Callable
from fnmatch import fnmatchcase
from functools import partial
from typing import Optional

import msgspec

from nodevitals.linux.sysfs import exists
from nodevitals.probe import (
    STALE_INTERVALS,
    Absent,
    Probe,
    ProbeError,
    Readings,
    TargetTiming,
    Timing,
)
from nodevitals.probes.disks import families, nvme, smartctl
from nodevitals.probes.disks.arrays import report_arrays, report_mappings
from nodevitals.probes.disks.block import (
    Disk,
    Inventory,
    is_physical,
    list_block_devices,
    list_disks,
    read_counts,
    read_size,
)
from nodevitals.probes.disks.health import Health, HealthError, report
from nodevitals.probes.disks.reader import Call, Reader, Slot
from nodevitals.probes.disks.settings import DisksSettings, DisksTarget
from nodevitals.wire import encode

# More are not exposed: a shelf of disks has a hundred.
MAX_DISKS = 256
# The kernel ends an admin command after 60 s, and then resets the controller.
_HUNG_SECONDS = 90.0
_WAIT_SHARE = 0.5
# A run of `health` is usually a fork.
_HEALTH_SECONDS = 60.0
_ASKED = ("ata", "sas")


class KnownHealth(msgspec.Struct):
    """The health that was read since the boot; `reader` identifies the agent process and the
    settings that read it.
    """

    boot_id: str = ""
    reader: str = ""
    slots: dict[str, Slot] = {}


class DisksState(msgspec.Struct):
    """The disks known in this boot, and their health."""

    inventory: Inventory = Inventory()
    health: KnownHealth = msgspec.field(default_factory=KnownHealth)


class DisksProbe(Probe):
    """Local disks: SMART health, wear, errors, temperature, missing disks, I/O. Also md arrays and
    device-mapper.
    """

    name = "disks"
    families = (*families.counts, *families.metrics)
    Settings = DisksSettings
    TargetSettings = DisksTarget
    State = DisksState
    shared = True
    persistent = True
    settings: DisksTarget
    state: DisksState
    _reader: Optional[Reader] = None

    @classmethod
    def targets(cls, settings: DisksSettings) -> list[tuple[str, DisksTarget]]:
        """The target that reads sysfs, and the one that reads the health of the disks."""
        parts = [("devices", DisksTarget(part="devices", settings=settings))]
        if settings.health:
            parts.append(("health", DisksTarget(part="health", settings=settings)))
        return parts

    @classmethod
    def target_timing(cls, own: DisksTarget, timing: Timing) -> Timing:
        """Health changes slowly, and most runs only repeat known values."""
        if own.part == "devices" or own.settings.interval is not None:
            return timing
        interval = max(timing.interval_seconds, min(_HEALTH_SECONDS, own.settings.health_interval))
        stale_after = max(timing.stale_after_seconds, STALE_INTERVALS * interval)
        return timing.changed_by(TargetTiming(interval=interval, stale_after=stale_after))

    @classmethod
    def is_shared(cls, target: str) -> bool:
        """`health` starts threads and smartctl."""
        return target == "devices"

    def stays(self) -> bool:
        """Whether a call is in flight: it may hang, and no other may be started for its disk."""
        return self._reader is not None and self._reader.busy

    def run(self, readings: Readings) -> None:
        """Read what this target is for."""
        if self.settings.part == "health":
            self._run_health(readings)
        else:
            self._run_devices(readings)

    def _excluded(self, name: str) -> bool:
        return any(fnmatchcase(name, pattern) for pattern in self.settings.settings.exclude)

    def _disks(self, names: list[str]) -> list[Disk]:
        disks = list_disks(self.host, names)
        return [disk for disk in disks if not self._excluded(disk.name)][:MAX_DISKS]

    def _run_devices(self, readings: Readings) -> None:
        own = self.settings.settings
        names = [name for name in list_block_devices(self.host) if not self._excluded(name)]
        disks = self._disks(names)
        arrays = [name for name in names if exists(self.host.sys(f"block/{name}/md"))]
        physical = [name for name in names if is_physical(self.host, name)]
        self._report_inventory(disks, readings)
        if not (disks or arrays or physical or self.state.inventory.highest or own.expected):
            raise Absent(f"no disk in {self.host.sys('block')}")
        shown = [disk for disk in names if any(fnmatchcase(disk, like) for like in own.include)]
        for name in dict.fromkeys([*physical, *shown][:MAX_DISKS]):
            self._report_io(name, readings)
        report_mappings(self.host, names[: 4 * MAX_DISKS], readings)
        # Disks whose files hung come last, so that the others are read before the next hang.
        arrays.sort(key=lambda name: name in readings.interrupted)
        report_arrays(self.host, arrays, readings)
        if not disks and own.required:
            raise ProbeError("absent", f"no disk in {self.host.sys('block')}")

    def _report_inventory(self, disks: list[Disk], readings: Readings) -> None:
        counted = [disk for disk in disks if disk.counted]
        known = self.state.inventory.seen(counted, readings.forgotten, self.host.boot_id())
        self.state.inventory = known
        expected = self.settings.settings.expected
        if known.highest or expected is not None:
            readings.add(families.PRESENT, len(counted))
            readings.add(families.EXPECTED, known.highest if expected is None else expected)
        for disk in disks:
            labels = (disk.model, disk.serial, disk.firmware, disk.transport)
            readings.add(families.INFO, 1, disk.name, *labels)
            readings.add(families.NAMESPACES, disk.namespaces, disk.name)
        for present in known.present:
            if present.serial:
                readings.condition(present.serial, "ok", present.name)
        for gone in known.gone:
            readings.add(families.MISSING, 1, gone.name, gone.serial)
            if gone.serial:
                readings.condition(gone.serial, "missing", gone.name)

    def _report_io(self, name: str, readings: Readings) -> None:
        readings.add(families.SIZE, read_size(self.host, name), name)
        counts = read_counts(self.host, name)
        if counts is None:
            return
        for operation in counts.operations:
            readings.add(families.IO_OPERATIONS, counts.operations[operation], name, operation)
            readings.add(families.IO_SECONDS, counts.seconds[operation], name, operation)
        for operation, transferred in counts.bytes.items():
            readings.add(families.IO_BYTES, transferred, name, operation)
        readings.add(families.IN_FLIGHT, counts.in_flight, name)
        readings.add(families.BUSY, counts.busy_seconds, name)

    def _run_health(self, readings: Readings) -> None:
        calls = self._calls()
        reader = self._reader = self._reader or self._new_reader()
        if not calls and not reader.busy:
            raise Absent("no disk whose health can be read")
        reader.refresh(calls, time.monotonic() + _WAIT_SHARE * self.timing.timeout_seconds)
        self.state.health = KnownHealth(self.host.boot_id(), self._reader_name(), reader.known())
        failures: list[HealthError] = []
        good = False
        for name in calls:
            health, failure = reader.health(name), reader.problem(name)
            if failure is not None:
                failures.append(failure)
                readings.add(families.UNREADABLE, 1, name, failure.reason)
            if health is not None:
                good = True
                report(health, name, readings)
                if "/" in name:  # the kernel does not show it
                    labels = (health.model, health.serial, health.firmware, "other")
                    readings.add(families.INFO, 1, name, *labels)
        if failures and not good and self.settings.settings.required:
            if all(failure.reason == "permission" for failure in failures):
                raise ProbeError("permission", failures[0].message, stays=reader.busy)
            raise ProbeError("unreadable", failures[0].message, stays=reader.busy)

    def _new_reader(self) -> Reader:
        """A reader with the results of earlier processes since the boot."""
        own, known, boot_id = self.settings.settings, self.state.health, self.host.boot_id()
        hung_seconds = max(_HUNG_SECONDS, own.smartctl_timeout + 10)
        slots = known.slots if boot_id and boot_id == known.boot_id else {}
        if known.reader != self._reader_name():  # the cause of a failure may be gone
            slots = {name: slot for name, slot in slots.items() if not slot.reason}
        return Reader(own.health_interval, hung_seconds, slots)

    def _reader_name(self) -> str:
        """The process id of the fork server, and a checksum of the settings."""
        return f"{os.getppid()} {zlib.crc32(encode(self.settings)):08x}"

    def _calls(self) -> dict[str, Call]:
        """The calls that read the health of the disks, by name."""
        own = self.settings.settings
        calls: dict[str, Call] = {}
        for disk in self._disks(list_block_devices(self.host)):
            path = os.path.join(own.device_directory, disk.name)
            if disk.transport == "pcie":
                calls[disk.name] = partial(self._read_nvme, path)
            elif disk.transport in _ASKED and disk.name.startswith("sd"):
                calls[disk.name] = self._smartctl(path, "", sleeps=True)
        for controller in own.raid:
            path = os.path.join(own.device_directory, controller.device)
            for kind in controller.types:
                calls[f"{controller.device}/{kind}"] = self._smartctl(path, kind, sleeps=True)
        return dict([*calls.items()][:MAX_DISKS])

    def _smartctl(self, path: str, kind: str, *, sleeps: bool) -> Callable[[], Optional[Health]]:
        own = self.settings.settings
        argv = smartctl.arguments(own.smartctl, path, kind, sleeps)
        return partial(smartctl.read_health, argv, own.smartctl_timeout)

    def _read_nvme(self, path: str) -> Optional[Health]:
        """Read by the kernel's ioctl; if that is not permitted, by smartctl, which may be."""
        try:
            return nvme.read_health(path)
        except HealthError as error:
            if error.reason != "permission":
                raise
            try:
                return self._smartctl(path, "", sleeps=False)()
            except HealthError as second:
                raise (error if second.reason == "tool_missing" else second) from None
