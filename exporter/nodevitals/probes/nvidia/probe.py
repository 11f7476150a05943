"""Probe `nvidia`: which GPUs answer, which are lost, and the health that NVML reports.

In: NVML, the PCI devices in sysfs, and /proc/driver/nvidia. Out: `accelerator_*` and `nvidia_*`,
and messages: to the probes `kernel_log` and `jobs` the names of the GPUs, to `kernel_log` the Xids
that NVML reported, to `kubernetes` the GPUs and MIG instances, to `profile` versions and modes.
One resident worker: starting the library takes seconds without persistence mode. A call may hang
or crash the worker; then a new one starts, because a library that was loaded stays loaded.
"""

from __future__ import annotations

import importlib
import time
from typing import TYPE_CHECKING, Annotated, NoReturn, Optional

import msgspec

from nodevitals.document.local import LocalLibrary
from nodevitals.probe import Absent, Probe, ProbeError, ProbeSettings, Readings
from nodevitals.probes.common import accelerators
from nodevitals.probes.common.accelerators import Inventory
from nodevitals.probes.common.device_names import DeviceName, DeviceNames
from nodevitals.probes.common.facts import send_facts
from nodevitals.probes.kernel_log.messages import NvmlXids
from nodevitals.probes.kubernetes.messages import send_accelerators
from nodevitals.probes.nvidia.families import (
    DEVICES,
    FAMILIES,
    MIG_INFO,
    NVLINKS_EXPECTED,
    NVLINKS_UNREADABLE,
    NVLINKS_UP,
    PROFILE_FACTS,
    VENDOR,
    VERSION_MISMATCH,
)
from nodevitals.probes.nvidia.hardware import Hardware, HardwareReader
from nodevitals.probes.nvidia.hung import HungGpus
from nodevitals.probes.nvidia.owners import NO_JOBS, ProcessOwners

if TYPE_CHECKING:
    from nodevitals.probes.nvidia.nvml import NvmlError
    from nodevitals.probes.nvidia.reader import GpuScan, NvmlReader, Unread

FAILED_RUNS_PER_START = 20
# A GPU may come and go repeatedly, and each start of the library stops all GPUs for seconds.
MIN_RUNS_PER_START = 4


class NvidiaSettings(ProbeSettings, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How many GPUs are expected, and where the library is."""

    expected: Optional[Annotated[int, msgspec.Meta(ge=1, le=128)]] = None
    """Number of GPUs that the node must have."""
    nvlinks: Optional[Annotated[int, msgspec.Meta(ge=0, le=64)]] = None
    """Number of NVLinks that must be active on each GPU; by default the highest ever active."""
    nvlink_errors_by_link: bool = False
    """Whether to expose NVLink errors of each link instead of their sum."""
    details: bool = False
    """Whether to expose memory clock and utilization, encoder and decoder, performance state,
    default power limit, NVLink 5 FEC history and C2C errors."""
    activity: bool = False
    """Whether to expose the activity of SM, tensor cores and DRAM (GPM; Hopper and later)."""
    ignore: tuple[str, ...] = NO_JOBS
    """Names of processes that may hold device memory without a job; at most 15 characters each."""
    library: LocalLibrary = "libnvidia-ml.so.1"
    """Name or path of the NVML library."""

    @property
    def required(self) -> bool:
        """Whether the absence of GPUs is a failure; true also if a number of GPUs is configured."""
        return self.enabled is True or self.expected is not None


class NvidiaState(msgspec.Struct):
    """The known GPUs; the highest number of active links that each ever had, by uuid; the slots of
    all GPUs that were ever on the PCI bus; and the GPUs whose driver did not return.
    """

    inventory: Inventory = Inventory()
    nvlinks: dict[str, int] = {}
    on_bus: set[str] = set()
    hung: HungGpus = msgspec.field(default_factory=HungGpus)


class NvidiaProbe(Probe):
    """NVIDIA GPUs (NVML): lost GPUs, ECC, remapped rows, NVLink, PCIe, slowdowns, temperatures,
    power. Also the fabric's state and the recovery action.
    """

    name = "nvidia"
    families = FAMILIES
    Settings = NvidiaSettings
    State = NvidiaState
    resident = True
    persistent = True
    # Without persistence mode, the start of the library initialises one GPU after the other.
    start_seconds = 30.0
    settings: NvidiaSettings
    state: NvidiaState

    @classmethod
    def preload(cls) -> None:
        """Import pynvml, which loads the library only in a run."""
        importlib.import_module("nodevitals.probes.nvidia.reader")

    def open(self) -> None:
        """Only prepare: the first run starts the library, so that it can report a failure."""
        self._hardware = HardwareReader(self.host)
        self._reader: NvmlReader | None = None
        self._runs = self._failed_runs = 0
        self._outdated = False

    def stays(self) -> bool:
        """Whether another start of the library would change nothing, or would come too soon."""
        return not self._outdated or self._runs < MIN_RUNS_PER_START

    def run(self, readings: Readings) -> None:
        """Read all GPUs, and compare them with the known ones."""
        self._runs += 1
        hardware = self._hardware.read()
        readings.add(DEVICES, len(hardware.pci.keys() - hardware.passed_through), "pci")
        readings.add(DEVICES, len(hardware.driver), "driver")
        readings.add(accelerators.EXPECTED, self.settings.expected, VENDOR)
        scan = self._scan(hardware, readings)
        self._outdated = scan.outdated
        known = self.state.inventory.known
        if not (scan.listing.count or hardware.pci or known):
            raise Absent("the driver is loaded, but there is no GPU")
        inventory, unread = self._compare(scan, hardware, readings)
        self.state.inventory = inventory
        slots = {entry.device.slot for entry in inventory.known}
        self.state.on_bus = slots & (self.state.on_bus | hardware.pci.keys())
        self._update_nvlinks(scan, readings)
        accelerators.report(inventory, VENDOR, readings)
        _expose_unreadable(unread, readings)
        self._send_messages(readings)
        if unread.unreadable:
            self._fail_unreadable(scan, unread)
        self._failed_runs = 0

    def _scan(self, hardware: Hardware, readings: Readings) -> GpuScan:
        from nodevitals.probes.nvidia.nvml import NvmlError, position
        from nodevitals.probes.nvidia.reader import NvmlReader
        from nodevitals.probes.nvidia.usage import UsageOptions

        position.device, position.announce = "all GPUs", readings.at
        devices = [entry.device for entry in self.state.inventory.known]
        try:
            if self._reader is None:
                by_link = self.settings.nvlink_errors_by_link
                usage = UsageOptions(self.settings.details, self.settings.activity)
                owners = ProcessOwners(self.host, self.settings.ignore)
                library = self.settings.library
                self._reader = NvmlReader(library, hardware, by_link, usage, owners)
            return self._reader.scan(
                hardware,
                devices,
                readings,
                self.state.hung,
                lambda scan: self._expose_before_hung(scan, hardware, readings),
            )
        except NvmlError as error:
            self._fail(error, hardware, readings)

    def _expose_before_hung(self, scan: GpuScan, hardware: Hardware, readings: Readings) -> None:
        """Expose the inventory so far, because a run that hangs does not report it."""
        inventory, unread = self._compare(scan, hardware, readings)
        accelerators.expose(inventory, VENDOR, readings)
        _expose_unreadable(unread, readings)
        readings.report()

    def _compare(
        self, scan: GpuScan, hardware: Hardware, readings: Readings
    ) -> tuple[Inventory, Unread]:
        """The inventory with what a scan found, and the GPUs that were not read."""
        from nodevitals.probes.nvidia.reader import explain

        state = self.state
        off_the_bus = state.on_bus - hardware.pci.keys() if hardware.bus_listed else set()
        known = state.inventory.known
        unread = explain(scan, known, hardware.passed_through, off_the_bus)
        states = {device.uuid: status.recovery for device, status in scan.read.items()}
        inventory = state.inventory.seen(
            scan.read,
            unread.lost,
            unread.withheld,
            readings.forgotten,
            states,
            time.time(),
            unread.codes,
        )
        return inventory, unread

    def _update_nvlinks(self, scan: GpuScan, readings: Readings) -> None:
        nvlinks = self.state.nvlinks
        for device, status in scan.read.items():
            links, labels = status.links, (device.index, device.uuid)
            highest = max(links.up, nvlinks.get(device.uuid, 0))
            nvlinks[device.uuid] = highest
            if links.read or links.unreadable:
                readings.add(NVLINKS_UNREADABLE, links.unreadable, *labels)
            if links.read:
                readings.add(NVLINKS_UP, links.up, *labels)
            if links.read or highest:
                configured = self.settings.nvlinks
                readings.add(
                    NVLINKS_EXPECTED, highest if configured is None else configured, *labels
                )
        known = {entry.device.uuid for entry in self.state.inventory.known}
        self.state.nvlinks = {uuid: links for uuid, links in nvlinks.items() if uuid in known}

    def _send_messages(self, readings: Readings) -> None:
        devices = [entry.device for entry in self.state.inventory.known if entry.device.slot]
        names = {device.slot: DeviceName(device.index, device.uuid) for device in devices}
        # Sent first in each run: so Xids equal to those of the last run differ from the receiver's
        # last message, and the receiver runs at once.
        for receiver in ("kernel_log", "jobs"):
            readings.send(receiver, DeviceNames(names))
        send_facts(readings, VENDOR, PROFILE_FACTS)
        send_accelerators(readings, VENDOR, self.state.inventory, _gpus_of_instances(readings))
        xids = self._reader.drain_xids() if self._reader else []
        if xids:
            readings.send("kernel_log", NvmlXids(xids))

    def _fail_unreadable(self, scan: GpuScan, unread: Unread) -> NoReturn:
        """Raise an error with the GPUs that cannot be identified or read. The library is kept for
        the others, and started again from time to time, because the library itself may fail.
        """
        from nodevitals.probes.nvidia.nvml import STALE_LIBRARY

        self._failed_runs += 1
        failed = {
            *unread.codes.values(),
            *(stranger.label for stranger in unread.strangers.values()),
        }
        stale = not failed.isdisjoint(map(str, STALE_LIBRARY))
        raise ProbeError(
            "unreadable",
            f"{unread.unreadable} of {scan.total} GPUs cannot be identified or read: "
            + "; ".join(unread.texts),
            stays=not stale and self.stays() and self._failed_runs % FAILED_RUNS_PER_START != 0,
        )

    def _fail(self, error: NvmlError, hardware: Hardware, readings: Readings) -> NoReturn:
        """Raise the reason why the library does not work. All GPUs are unknown then, not lost."""
        from nodevitals.probes.nvidia import nvml

        loaded = hardware.module_version
        if error.code == nvml.VERSION_MISMATCH:
            readings.add(VERSION_MISMATCH, 1)
            raise ProbeError(
                "version_mismatch",
                f"the library is {nvml.library_version() or 'of another version'}, the loaded "
                f"driver {loaded or 'unknown'}: reload the driver or reboot the node",
            )
        if hardware.pci and hardware.pci.keys() == hardware.passed_through:
            raise Absent("all GPUs are bound to vfio-pci, for virtual machines")
        if not (hardware.pci or loaded or self.state.inventory.known):
            raise Absent(f"no NVIDIA GPU on the PCI bus, no driver ({error.text})")
        gpus = f"GPUs: {len(hardware.pci)} on the PCI bus, {len(hardware.driver)} with the driver"
        if error.code == nvml.LIBRARY_NOT_FOUND:
            raise ProbeError("library_missing", f"{error.text}; {gpus}")
        if loaded:
            raise ProbeError(
                "no_access",
                f"NVML failed with {error.text!r}, but driver {loaded} is loaded; {gpus}; a "
                "container may have lost its devices (systemctl daemon-reload): restart it",
            )
        raise ProbeError("driver_not_loaded", f"NVML failed with {error.text!r}; {gpus}")


def _gpus_of_instances(readings: Readings) -> dict[str, str]:
    """The GPU's uuid for each MIG instance, by the instance's uuid."""
    infos = [sample.labels for sample in readings.samples if sample.family == MIG_INFO.name]
    uuid, instance = MIG_INFO.labels.index("uuid"), MIG_INFO.labels.index("mig_uuid")
    return {labels[instance]: labels[uuid] for labels in infos if labels[instance]}


def _expose_unreadable(unread: Unread, readings: Readings) -> None:
    for (index, slot), failure in unread.strangers.items():
        readings.add(accelerators.ERROR_INFO, 1, VENDOR, index, slot, failure.label)
    readings.add(accelerators.UNREADABLE, unread.unreadable, VENDOR)
