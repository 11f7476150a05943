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
# Two clocks that are read one after the other differ by less.
SMALLEST_STEP_SECONDS = 0.5


class UnpairedXid(msgspec.Struct, array_like=True):
    """An Xid in the log that NVML has not reported yet; `read_at` is monotonic."""

    bus_id: str
    code: int
    read_at: float


class UnnamedXid(msgspec.Struct, array_like=True):
    """Xids of a GPU whose name is not known yet; they wait for it `until` (monotonic). `last` is
    the Unix time of the last one.
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
    """Whether a NIC that has failed in this boot still has."""

    driver: str
    pci_bus_id: str
    failed: bool


class KernelLogState(msgspec.Struct):
    """The last record that was read, by its `sequence` number, and what belongs to the records up
    to it. Only `devices` outlives a boot.
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
    """When each device and event had its last row of the history (monotonic)."""
    clock_offset: Optional[float] = None
    """Unix time minus monotonic time; it changes only when the node's clock is set."""

    def in_boot(self, boot_id: str) -> KernelLogState:
        """This state if it is of that boot, or of one that could not be read; else a new one with
        the same devices.
        """
        if self.boot_id in (boot_id, ""):
            self.boot_id = boot_id
            return self
        return KernelLogState(boot_id=boot_id, devices=self.devices)

    def follow_clock(self, offset: float) -> None:
        """Move the times of earlier events together with a clock that was set since, as NTP does
        after a boot: clock minus time is then still the age of an event.
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
