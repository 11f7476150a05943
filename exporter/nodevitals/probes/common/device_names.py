"""Messages of the probes `nvidia` and `ascend` to other probes: the labels of the accelerators that
other probes know by PCI bus id or device file.
"""

from __future__ import annotations

from typing import NamedTuple

import msgspec


class DeviceName(NamedTuple):
    """The labels that identify an accelerator: the vendor's index and the uuid."""

    device: str
    uuid: str


class DeviceNames(msgspec.Struct, frozen=True, tag="devices"):
    """All known GPUs by PCI bus id; replaces the names of earlier messages."""

    by_bus_id: dict[str, DeviceName]


class NpuNames(msgspec.Struct, frozen=True, tag="npus"):
    """All known NPUs by physical id; replaces the names of earlier messages.

    The physical id is N of /dev/davinciN: https://gitcode.com/Ascend/mind-cluster, whose device
    plugin and container runtime give a container the device file of that number.
    """

    by_physical_id: dict[int, DeviceName]
