"""Probe `disks`: local disks, their I/O and their health; md arrays and device-mapper devices.

In: /sys/block and /sys/class/nvme, NVMe's health page, smartctl. Out: `nodevitals_disk_*` and
`nodevitals_disks_*`. Two workers: `devices` reads sysfs only, so that no disk that hangs holds it
up; `health` asks the disks.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from fnmatch import fnmatchcase
from functools import partial
from typing import Optional

import msgspec

from nodevitals.linux.sysfs import exists
from nodevitals.probe import Absent, Probe, ProbeError, Readings
from nodevitals.probes.disks import families, nvme, smartctl
from nodevitals.probes.disks.arrays import report_arrays, report_mappings
from nodevitals.probes.disks.block import (
    Disk,
    is_physical,
    list_block_devices,
    list_disks,
    read_counts,
    read_size,
)
from nodevitals.probes.disks.health import Health, HealthError, report
from nodevitals.probes.disks.inventory import Inventory
from nodevitals.probes.disks.reader import Call, Reader
from nodevitals.probes.disks.settings import DisksSettings, DisksTarget

# More are not exposed: a shelf of disks has a hundred.
MAX_DISKS = 256
# The kernel ends an admin command after 60 s, and then resets the controller.
_HUNG_SECONDS = 90.0
_WAIT_SHARE = 0.5
_ASKED = ("ata", "sas")


class DisksState(msgspec.Struct):
    """The disks known in this boot."""

    inventory: Inventory = Inventory()


class DisksProbe(Probe):
    """Local disks: SMART health, wear, media errors, temperature, missing disks; I/O; md arrays,
    device-mapper.
    """

    name = "disks"
    families = (*families.counts, *families.metrics)
    Settings = DisksSettings
    TargetSettings = DisksTarget
    State = DisksState
    resident = True
    shared = True
    persistent = True
    settings: DisksTarget
    state: DisksState

    @classmethod
    def targets(cls, settings: DisksSettings) -> list[tuple[str, DisksTarget]]:
        """The worker that reads sysfs, and the one that asks the disks."""
        parts = [("devices", DisksTarget(part="devices", settings=settings))]
        if settings.health:
            parts.append(("health", DisksTarget(part="health", settings=settings)))
        return parts

    @classmethod
    def is_resident(cls, target: str) -> bool:
        """Nothing of sysfs needs to live on between runs."""
        return target == "health"

    def open(self) -> None:
        """Start without any health read."""
        own = self.settings.settings
        self._reader = Reader(own.health_interval, max(_HUNG_SECONDS, own.smartctl_timeout + 10))

    def run(self, readings: Readings) -> None:
        """Read what this worker is for."""
        if self.settings.part == "health":
            self._run_health(readings)
        else:
            self._run_devices(readings)

    def _excluded(self, name: str) -> bool:
        return any(fnmatchcase(name, pattern) for pattern in self.settings.settings.exclude)

    def _disks(self, names: list[str]) -> list[Disk]:
        found = list_disks(self.host, names)
        return [one for one in found if not self._excluded(one.name)][:MAX_DISKS]

    def _run_devices(self, readings: Readings) -> None:
        own = self.settings.settings
        names = [name for name in list_block_devices(self.host) if not self._excluded(name)]
        disks = self._disks(names)
        arrays = [name for name in names if exists(self.host.sys(f"block/{name}/md"))]
        physical = [name for name in names if is_physical(self.host, name)]
        self._report_inventory(disks, readings)
        if not (disks or arrays or physical or self.state.inventory.highest or own.expected):
            raise Absent(f"no disk in {self.host.sys('block')}")
        shown = [one for one in names if any(fnmatchcase(one, name) for name in own.include)]
        for name in dict.fromkeys([*physical, *shown][:MAX_DISKS]):
            self._report_io(name, readings)
        report_mappings(self.host, names[: 4 * MAX_DISKS], readings)
        # One whose files hung comes last: the others are read before it hangs again.
        arrays.sort(key=lambda name: name in readings.interrupted)
        report_arrays(self.host, arrays, readings)
        if not disks and own.required:
            raise ProbeError("absent", f"no disk in {self.host.sys('block')}")

    def _report_inventory(self, disks: list[Disk], readings: Readings) -> None:
        counted = [one for one in disks if one.counted]
        known = self.state.inventory.seen(counted, readings.forgotten, self.host.boot_id())
        self.state.inventory = known
        expected = self.settings.settings.expected
        if known.highest or expected is not None:
            readings.add(families.PRESENT, len(counted))
            readings.add(families.EXPECTED, known.highest if expected is None else expected)
        for one in disks:
            labels = (one.model, one.serial, one.firmware, one.transport)
            readings.add(families.INFO, 1, one.name, *labels)
            readings.add(families.NAMESPACES, one.namespaces, one.name)
        for disk in known.present:
            if disk.serial:
                readings.condition(disk.serial, "ok", disk.name)
        for disk in known.gone:
            readings.add(families.MISSING, 1, disk.name, disk.serial)
            if disk.serial:
                readings.condition(disk.serial, "missing", disk.name)

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
        if not calls:
            raise Absent("no disk whose health can be read")
        self._reader.refresh(calls, time.monotonic() + _WAIT_SHARE * self.timing.timeout_seconds)
        failures: list[HealthError] = []
        good = False
        for name in calls:
            health, failure = self._reader.health(name), self._reader.problem(name)
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
            # This process lives on: it knows when each disk is to be asked again, and which hangs.
            if all(one.reason == "permission" for one in failures):
                raise ProbeError("permission", failures[0].message, stays=True)
            raise ProbeError("unreadable", failures[0].message, stays=True)

    def _calls(self) -> dict[str, Call]:
        """How the health of each disk is read, by its name."""
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
        """By the kernel's ioctl, or where that is not allowed by smartctl, which may be."""
        try:
            return nvme.read_health(path)
        except HealthError as error:
            if error.reason != "permission":
                raise
            try:
                return self._smartctl(path, "", sleeps=False)()
            except HealthError as second:
                raise (error if second.reason == "tool_missing" else second) from None
