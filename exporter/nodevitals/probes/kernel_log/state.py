"""What the probe `kernel_log` keeps from run to run and over restarts of the agent.

Times are in seconds; those called monotonic count from boot.
"""

from __future__ import annotations

from typing import Optional

import msgspec

from nodevitals.probes.common.accelerators import Action
from nodevitals.probes.common.device_names import DeviceName, DeviceNames
from nodevitals.probes.kernel_log.messages import NvmlXids
from nodevitals.probes.kernel_log.xid import Xid

MAX_WAITING_XIDS = 1000
# Reading two clocks one after the other causes a smaller difference than this.
SMALLEST_STEP_SECONDS = 0.5


class UnpairedXid(msgspec.Struct, array_like=True):
    """An Xid in the log that NVML has not reported yet; `read_at` is monotonic."""

    bus_id: str
    code: int
    read_at: float


class UnnamedXid(msgspec.Struct, array_like=True):
    """Xids of a GPU whose name is not known yet; they wait for the name `until` (monotonic). `last`
    is the Unix time of the last Xid.
    """

    xid: Xid
    count: int
    until: float
    last: float


class LastXid(msgspec.Struct, array_like=True):
    """The Unix time of a GPU's last Xid of this code and action."""

    bus_id: str
    code: int
    action: Action
    time: float


class LastSxid(msgspec.Struct, array_like=True):
    """The Unix time of an NVSwitch's last SXid of this code and action."""

    switch: str
    bus_id: str
    code: int
    action: Action
    time: float


class LastDeviceEvent(msgspec.Struct, array_like=True):
    """The Unix time of a device's last event of this kind."""

    driver: str
    pci_bus_id: str
    event: str
    time: float


class NicState(msgspec.Struct, array_like=True):
    """Whether a NIC that has failed since the boot has not recovered yet."""

    driver: str
    pci_bus_id: str
    failed: bool


class KernelLogState(msgspec.Struct):
    """The last record that was read, by its `sequence` number, and the results of all records up to
    it. Only `devices` outlives a boot.
    """

    boot_id: str = ""
    sequence: int = -1
    devices: dict[str, DeviceName] = {}
    last_seen: list[LastXid] = []
    unpaired: list[UnpairedXid] = []
    from_nvml: list[tuple[str, int]] = []
    unnamed: list[UnnamedXid] = []
    device_events: list[LastDeviceEvent] = []
    last_sxids: list[LastSxid] = []
    nics: list[NicState] = []
    stopped: list[str] = []
    """Block devices whose file systems accept no writes."""
    rows: dict[str, float] = {}
    """When the history got its last row of each device and event (monotonic)."""
    clock_offset: Optional[float] = None
    """Unix time minus monotonic time; it changes only when the node's clock is set."""

    def in_boot(self, boot_id: str) -> KernelLogState:
        """This state if it belongs to that boot, or if the boot's identifier is unknown; else a new
        state with the same devices.
        """
        if self.boot_id in (boot_id, ""):
            self.boot_id = boot_id
            return self
        return KernelLogState(boot_id=boot_id, devices=self.devices)

    def follow_clock(self, offset: float) -> None:
        """Shift the times of earlier events if the clock was set since, as by NTP after a boot: so
        the age of an event is still the clock's time minus the event's.
        """
        step = 0.0 if self.clock_offset is None else offset - self.clock_offset
        if self.clock_offset is not None and abs(step) < SMALLEST_STEP_SECONDS:
            return
        self.clock_offset = offset
        for waiting in self.unnamed:
            waiting.last += step
        timed: list[LastXid | LastSxid | LastDeviceEvent]
        timed = [*self.last_seen, *self.last_sxids, *self.device_events]
        for entry in timed:
            entry.time += step

    def receive(self, message: DeviceNames | NvmlXids) -> None:
        """Keep the names, or the Xids until the log has been read to its end."""
        if isinstance(message, DeviceNames):
            self.devices = message.by_bus_id
        else:
            self.from_nvml = [*self.from_nvml, *message.xids][-MAX_WAITING_XIDS:]
