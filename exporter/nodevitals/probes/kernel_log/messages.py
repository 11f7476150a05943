"""The messages that the probe `kernel_log` receives from the probe `nvidia`: the log and NVML
identify a GPU by its PCI bus id, series by index and uuid.
"""

from __future__ import annotations

from typing import NamedTuple

import msgspec


class DeviceName(NamedTuple):
    """A GPU as labels identify it: NVML's index and the uuid."""

    device: str
    uuid: str


class DeviceNames(msgspec.Struct, frozen=True, tag="devices"):
    """All known GPUs by PCI bus id; replaces the names of earlier messages."""

    by_bus_id: dict[str, DeviceName]


class NvmlXids(msgspec.Struct, frozen=True, tag="xids"):
    """PCI bus id and code of each Xid that NVML reported since the last message."""

    xids: list[tuple[str, int]]
