"""Lists the GPUs of NVML: those that can be identified, and the failures of the others.

A GPU is found by its index, or else by its bus id; it is identified by its UUID. Any of these calls
may fail for a moment, so a failure shows nothing about a GPU except its code.

NVML omits a GPU from its list, without an error, if it cannot open the GPU's device file (observed
with driver 580). In a container that lost its devices, a healthy GPU is then missing like a dead
one. So the device files, /dev/nvidia0 and so on, are counted. None is opened: the driver would
initialize a dead GPU, which may take seconds.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterable
from pathlib import Path

import msgspec
import pynvml

from nodevitals.linux.pci import BUS_ID
from nodevitals.linux.sysfs import list_names
from nodevitals.probes.common.accelerators import Device
from nodevitals.probes.common.nvidia import normal_bus_id
from nodevitals.probes.nvidia.nvml import (
    LOST,
    NO_PERMISSION,
    NOT_FOUND,
    Failure,
    Gpu,
    Handle,
    call,
    position,
    require,
)

FOLDER = Path("/dev")
MAJOR = 195
"""The major number of these device files: NV_MAJOR_DEVICE_NUMBER of the driver."""
_NAME = re.compile(r"nvidia\d+")


class DeviceNodes(msgspec.Struct, frozen=True):
    """The number of device files of GPUs, and how many of them this process may open."""

    present: int
    usable: int

    def refusal(self, wanted: int) -> Failure | None:
        """Why not all of so many GPUs can be opened; None if they can. It is unknown which GPU a
        file belongs to.
        """
        if self.usable >= wanted:
            return None
        if self.usable < self.present:
            text = f"{self.usable} of {self.present} device files /dev/nvidia* can be opened"
            return Failure(NO_PERMISSION, text)
        # A container has no file of a GPU that was dead when the container was created.
        text = f"{self.present} device files /dev/nvidia* are there for {wanted} GPUs"
        return Failure(NOT_FOUND, text)


def read_nodes() -> DeviceNodes:
    """Count the device files."""
    paths = [FOLDER / name for name in filter(_NAME.fullmatch, list_names(FOLDER))]
    present = [path for path in paths if _is_gpu(path)]
    return DeviceNodes(len(present), sum(map(_may_open, present)))


def _is_gpu(path: Path) -> bool:
    try:
        status = path.stat()
    except OSError:
        return False
    return stat.S_ISCHR(status.st_mode) and os.major(status.st_rdev) == MAJOR


def _may_open(path: Path) -> bool:
    """Whether this process may open a device file. access(2) checks the device cgroup, too; only
    open(2) checks the mount option.
    """
    try:
        if os.statvfs(path).f_flag & os.ST_NODEV:
            return False
    except OSError:
        return False
    # The filter of system calls of an older container runtime denies faccessat2(2), which the first
    # of them is.
    mode = os.R_OK | os.W_OK
    return os.access(path, mode, effective_ids=True) or os.access(path, mode)


class Listing(msgspec.Struct):
    """`count` is NVML's count; `lost` and `unreadable` are by slot. `failed` has, by index, the
    GPUs whose slot is not known; they may also be in the other lists.
    """

    count: int
    gpus: list[Gpu]
    lost: dict[str, Failure]
    unreadable: dict[str, Failure]
    failed: dict[str, Failure]


def list_gpus(slots: Iterable[str], known: Iterable[Device]) -> Listing:
    """List the GPUs; look for one in each of these slots too. Raises NvmlError."""
    lister = _Lister(known)
    for index in range(lister.listing.count):
        position.device = f"GPU {index}"
        lister.add_index(str(index), call(pynvml.nvmlDeviceGetHandleByIndex, index))
    for slot in sorted(set(slots) - {gpu.slot for gpu in lister.gpus.values()}):
        position.device = f"GPU at {slot}"
        lister.add_slot(slot, call(pynvml.nvmlDeviceGetHandleByPciBusId, f"{slot}.0".encode()))
    position.device = "all GPUs"
    return lister.finished()


class _Lister:
    """Builds a listing."""

    def __init__(self, known: Iterable[Device]) -> None:
        self.gpus: dict[str, Gpu] = {}
        self.listing = Listing(require(pynvml.nvmlDeviceGetCount), [], {}, {}, {})
        self._known = {device.uuid: device for device in known}

    def add_index(self, index: str, handle: Handle | Failure) -> None:
        """Add the GPU that NVML has at an index."""
        uuid = _uuid(handle)
        slot = "" if isinstance(handle, Failure) else _slot(handle)
        if isinstance(uuid, Failure):
            if slot:
                self._add_failure(slot, uuid)
            else:
                self.listing.failed[index] = uuid
            return
        known = self._known.get(uuid)
        self.gpus[uuid] = Gpu(slot or (known.slot if known else ""), index, uuid, handle)

    def add_slot(self, slot: str, handle: Handle | Failure) -> None:
        """Add the GPU that NVML has in a slot; nothing if it has none there."""
        uuid = _uuid(handle)
        if not isinstance(uuid, Failure):
            known = self.gpus.get(uuid)
            index = known.index if known else self._index(uuid, handle)
            self.gpus[uuid] = Gpu(slot, index, uuid, handle)
            self.listing.failed.pop(index, None)
            self.listing.unreadable.pop(slot, None)
            self.listing.lost.pop(slot, None)
        elif uuid.code != pynvml.NVML_ERROR_NOT_FOUND or not isinstance(handle, Failure):
            self._add_failure(slot, uuid)

    def _add_failure(self, slot: str, failure: Failure) -> None:
        which = self.listing.lost if failure.code == LOST else self.listing.unreadable
        which[slot] = failure

    def finished(self) -> Listing:
        """The listing, in the order of the indices."""
        self.listing.gpus = sorted(self.gpus.values(), key=lambda gpu: (len(gpu.index), gpu.index))
        return self.listing

    def _index(self, uuid: str, handle: Handle) -> str:
        index = call(pynvml.nvmlDeviceGetIndex, handle)
        if not isinstance(index, Failure):
            return str(index)
        return self._known[uuid].index if uuid in self._known else ""


def _uuid(handle: Handle | Failure) -> str | Failure:
    if isinstance(handle, Failure):
        return handle
    uuid: str | Failure = call(pynvml.nvmlDeviceGetUUID, handle)
    return uuid or Failure(pynvml.NVML_ERROR_NO_DATA, "nvmlDeviceGetUUID")


def _slot(handle: Handle) -> str:
    """The normal bus id of a GPU; '' if NVML does not return it."""
    info = call(pynvml.nvmlDeviceGetPciInfo, handle)
    if isinstance(info, Failure):
        return ""
    bus_id = info.busId if isinstance(info.busId, str) else info.busId.decode("ascii", "replace")
    return normal_bus_id(bus_id) if BUS_ID.fullmatch(bus_id) else ""
