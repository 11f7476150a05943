"""Probe `nvidia`: which GPUs answer, which are lost, and what NVML tells of their health.

In: NVML (`nvidia/`), the PCI devices in sysfs, and /proc/driver/nvidia. Out: `accelerator_*` and
`nvidia_*`, and letters to the probe `kernel_log`: the cards' names, and the Xids that NVML heard.
One resident worker: the library's start costs seconds without persistence mode. A call may hang
or crash it; then a new one starts, because a library that was loaded stays loaded.
"""

from __future__ import annotations

import importlib
import time
from typing import TYPE_CHECKING, Annotated, ClassVar, NoReturn

import msgspec
from msgspec.msgpack import encode

from nodevitals.config import ProbeSettings
from nodevitals.probe import Absent, Family, Probe, ProbeError, Readings
from nodevitals.probes.common import accelerators
from nodevitals.probes.common.accelerators import Inventory
from nodevitals.probes.kernel_log.xid import DeviceName, HeardXids, KnownDevices
from nodevitals.probes.nvidia.families import (
    DEVICES,
    FAMILIES,
    NVLINKS_EXPECTED,
    VENDOR,
    VERSION_MISMATCH,
)
from nodevitals.probes.nvidia.hardware import Hardware, HardwareReader

if TYPE_CHECKING:
    from nodevitals.probes.nvidia.node import Look, Node
    from nodevitals.probes.nvidia.nvml import NvmlError


class NvidiaSettings(ProbeSettings, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How many cards there should be, and where the library is.

    `nvlinks` is how many links each card should have up; without it, the most that ever were.
    """

    expected: Annotated[int, msgspec.Meta(ge=1, le=128)] | None = None
    nvlinks: Annotated[int, msgspec.Meta(ge=0, le=64)] | None = None
    nvlink_errors_by_link: bool = False
    library: str = "libnvidia-ml.so.1"

    @property
    def required(self) -> bool:
        """Who expects cards does not want silence."""
        return self.enabled is True or self.expected is not None


class Memory(msgspec.Struct):
    """What outlives a boot: the cards known, and the most links each ever had up."""

    inventory: Inventory = Inventory()
    nvlinks: dict[str, int] = {}


class NvidiaProbe(Probe):
    """NVIDIA GPUs."""

    name: ClassVar[str] = "nvidia"
    families: ClassVar[tuple[Family, ...]] = FAMILIES
    Settings: ClassVar[type[ProbeSettings]] = NvidiaSettings
    resident: ClassVar[bool] = True
    remembers: ClassVar[bool] = True
    # Without persistence mode, the library's start initialises one card after the other.
    start_seconds: ClassVar[float] = 30.0
    settings: NvidiaSettings

    @classmethod
    def preload(cls) -> None:
        """Import pynvml, which the agent itself must not."""
        importlib.import_module("nodevitals.probes.nvidia.node")

    def open(self) -> None:
        """Start with nothing: the first run starts the library, so that it can say what fails."""
        self._hardware = HardwareReader(self.host)
        self._node: Node | None = None

    def run(self, readings: Readings) -> None:
        """One look at everything."""
        from nodevitals.probes.nvidia.node import Node
        from nodevitals.probes.nvidia.nvml import NvmlError

        memory = readings.recalled(Memory) or Memory()
        hardware = self._hardware.read()
        readings.add(DEVICES, len(hardware.pci.keys() - hardware.given_away), "pci")
        readings.add(DEVICES, len(hardware.driver), "driver")
        readings.add(accelerators.EXPECTED, self.settings.expected, VENDOR)
        known = memory.inventory.known
        try:
            if self._node is None:
                self._node = Node(self.settings.library, self.settings.nvlink_errors_by_link)
            slots = {*hardware.pci, *hardware.driver, *(one.device.slot for one in known)}
            look = self._node.look(slots, readings)
        except NvmlError as error:
            self._explain(error, hardware, memory, readings)
        if not (look.read or look.refused or hardware.pci or known):
            raise Absent("the driver is loaded, and there is no card")
        look.withheld |= hardware.given_away
        self._remember(memory, look, readings)
        accelerators.report(memory.inventory, VENDOR, readings)
        self._write_letters(memory.inventory, self._node, readings)
        readings.carry = encode(memory)

    def _remember(self, memory: Memory, look: Look, readings: Readings) -> None:
        states = {card.uuid: told.recovery for card, told in look.read.items()}
        memory.inventory = memory.inventory.seen(
            look.read, look.refused, look.withheld, readings.forgotten, states, time.time()
        )
        for card, told in look.read.items():
            most = max(told.links_up, memory.nvlinks.get(card.uuid, 0))
            memory.nvlinks[card.uuid] = most
            if told.links:
                wanted = self.settings.nvlinks
                expected = most if wanted is None else wanted
                readings.add(NVLINKS_EXPECTED, expected, card.index, card.uuid)
        known = {one.device.uuid for one in memory.inventory.known}
        memory.nvlinks = {uuid: most for uuid, most in memory.nvlinks.items() if uuid in known}

    def _write_letters(self, inventory: Inventory, node: Node, readings: Readings) -> None:
        names = KnownDevices(
            {
                one.device.slot: DeviceName(one.device.index, one.device.uuid)
                for one in inventory.known
            }
        )
        readings.send("kernel_log", encode(names))
        heard = node.heard_xids()
        if heard:
            readings.send("kernel_log", encode(HeardXids(heard)))

    def _explain(
        self, error: NvmlError, hardware: Hardware, memory: Memory, readings: Readings
    ) -> NoReturn:
        """Say why the library does not work. No card is lost by that: all are unknown."""
        from nodevitals.probes.nvidia import nvml

        loaded = hardware.module_version
        if error.code == nvml.VERSION_MISMATCH:
            readings.add(VERSION_MISMATCH, 1)
            raise ProbeError(
                "version_mismatch",
                f"the library is {nvml.library_version() or 'of another version'}, the loaded "
                f"driver {loaded or 'unknown'}: reload the driver or reboot the node",
            )
        if hardware.pci and hardware.pci.keys() == hardware.given_away:
            raise Absent("all cards are bound to vfio-pci, for virtual machines")
        if not (hardware.pci or loaded or memory.inventory.known):
            raise Absent(f"no NVIDIA card on the PCI bus, no driver ({error.text})")
        cards = f"{len(hardware.pci)} on the PCI bus, {len(hardware.driver)} with the driver"
        if error.code == nvml.LIBRARY_NOT_FOUND:
            raise ProbeError("library_missing", f"{error.text}; cards: {cards}")
        if loaded:
            raise ProbeError(
                "no_access",
                f"NVML says {error.text!r} though driver {loaded} is loaded; cards: {cards}; a "
                "container may have lost its devices (systemctl daemon-reload): restart it",
            )
        raise ProbeError("driver_not_loaded", f"NVML says {error.text!r}; cards: {cards}")
