"""Probe `nvidia`: which GPUs answer, which are lost, and the health that NVML reports.

In: NVML, the PCI devices in sysfs, and /proc/driver/nvidia. Out: `accelerator_*` and `nvidia_*`,
and messages to the probe `kernel_log`: the names of the GPUs, and the Xids that NVML reported.
One resident worker: starting the library takes seconds without persistence mode. A call may hang
or crash the worker; then a new one starts, because a library that was loaded stays loaded.
"""

from __future__ import annotations

import importlib
import time
from typing import TYPE_CHECKING, Annotated, NoReturn

import msgspec

from nodevitals.probe import Absent, Probe, ProbeError, ProbeSettings, Readings
from nodevitals.probes.common import accelerators
from nodevitals.probes.common.accelerators import Inventory
from nodevitals.probes.kernel_log.messages import DeviceName, DeviceNames, NvmlXids
from nodevitals.probes.nvidia.families import (
    DEVICES,
    FAMILIES,
    NVLINKS_EXPECTED,
    VENDOR,
    VERSION_MISMATCH,
)
from nodevitals.probes.nvidia.hardware import Hardware, HardwareReader

if TYPE_CHECKING:
    from nodevitals.probes.nvidia.nvml import NvmlError
    from nodevitals.probes.nvidia.reader import GpuScan, NvmlReader


class NvidiaSettings(ProbeSettings, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How many GPUs are expected, and where the library is."""

    expected: Annotated[int, msgspec.Meta(ge=1, le=128)] | None = None
    """Number of GPUs that the node must have."""
    nvlinks: Annotated[int, msgspec.Meta(ge=0, le=64)] | None = None
    """Number of NVLinks that must be active on each GPU; by default the highest ever active."""
    nvlink_errors_by_link: bool = False
    """Whether to expose NVLink errors of each link instead of their sum."""
    library: str = "libnvidia-ml.so.1"
    """Name or path of the NVML library."""

    @property
    def required(self) -> bool:
        """A configured number of GPUs makes their absence a failure."""
        return self.enabled is True or self.expected is not None


class NvidiaState(msgspec.Struct):
    """The known GPUs, and by uuid the highest number of active links that each ever had."""

    inventory: Inventory = Inventory()
    nvlinks: dict[str, int] = {}


class NvidiaProbe(Probe):
    """NVIDIA GPUs through NVML: which answer and which are lost, ECC, remapped rows, NVLink,
    fabric, PCIe, slowdowns, temperatures, power, recovery action.
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
        """Import pynvml, which the agent itself must not."""
        importlib.import_module("nodevitals.probes.nvidia.reader")

    def open(self) -> None:
        """Only prepare: the first run starts the library, so that it can report what fails."""
        self._hardware = HardwareReader(self.host)
        self._reader: NvmlReader | None = None

    def run(self, readings: Readings) -> None:
        """Read all GPUs, and compare them with the known ones."""
        from nodevitals.probes.nvidia.nvml import NvmlError
        from nodevitals.probes.nvidia.reader import NvmlReader

        hardware = self._hardware.read()
        readings.add(DEVICES, len(hardware.pci.keys() - hardware.passed_through), "pci")
        readings.add(DEVICES, len(hardware.driver), "driver")
        readings.add(accelerators.EXPECTED, self.settings.expected, VENDOR)
        known = self.state.inventory.known
        try:
            if self._reader is None:
                by_link = self.settings.nvlink_errors_by_link
                self._reader = NvmlReader(self.settings.library, by_link)
            slots = {*hardware.pci, *hardware.driver, *(one.device.slot for one in known)}
            scan = self._reader.scan(slots, readings)
        except NvmlError as error:
            self._fail(error, hardware, readings)
        if not (scan.read or scan.lost or hardware.pci or known):
            raise Absent("the driver is loaded, but there is no GPU")
        scan.withheld |= hardware.passed_through
        self._update_inventory(scan, readings)
        self._update_nvlinks(scan, readings)
        accelerators.report(self.state.inventory, VENDOR, readings)
        self._send_messages(self._reader, readings)

    def _update_inventory(self, scan: GpuScan, readings: Readings) -> None:
        states = {device.uuid: status.recovery for device, status in scan.read.items()}
        self.state.inventory = self.state.inventory.seen(
            scan.read, scan.lost, scan.withheld, readings.forgotten, states, time.time()
        )

    def _update_nvlinks(self, scan: GpuScan, readings: Readings) -> None:
        nvlinks = self.state.nvlinks
        for device, status in scan.read.items():
            highest = max(status.links_up, nvlinks.get(device.uuid, 0))
            nvlinks[device.uuid] = highest
            if status.links:
                configured = self.settings.nvlinks
                expected = highest if configured is None else configured
                readings.add(NVLINKS_EXPECTED, expected, device.index, device.uuid)
        known = {one.device.uuid for one in self.state.inventory.known}
        self.state.nvlinks = {uuid: links for uuid, links in nvlinks.items() if uuid in known}

    def _send_messages(self, reader: NvmlReader, readings: Readings) -> None:
        devices = [one.device for one in self.state.inventory.known]
        names = {device.slot: DeviceName(device.index, device.uuid) for device in devices}
        readings.send("kernel_log", DeviceNames(names))
        xids = reader.drain_xids()
        if xids:
            readings.send("kernel_log", NvmlXids(xids))

    def _fail(self, error: NvmlError, hardware: Hardware, readings: Readings) -> NoReturn:
        """Raise why the library does not work. No GPU is lost by that: all are unknown."""
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
