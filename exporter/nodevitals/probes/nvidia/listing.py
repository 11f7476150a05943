"""Which GPUs NVML lists: those that can be identified, and how the others fail.

A GPU is found by its index, or else by its bus id; it is identified by its UUID. Any of these calls
may fail for a moment, so one that fails says nothing about a GPU but its code.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec
import pynvml

from nodevitals.linux.pci import BUS_ID
from nodevitals.probes.common.accelerators import Device
from nodevitals.probes.common.nvidia import normal_bus_id
from nodevitals.probes.nvidia.nvml import LOST, Failure, Gpu, Handle, call, position, require


class Listing(msgspec.Struct):
    """`count` is NVML's own; `lost` and `unreadable` are by slot. `failed` are, by index, those
    whose slot is not known; they may be among the others.
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
    """Collects a listing."""

    def __init__(self, known: Iterable[Device]) -> None:
        self.gpus: dict[str, Gpu] = {}
        self.listing = Listing(require(pynvml.nvmlDeviceGetCount), [], {}, {}, {})
        self._known = {device.uuid: device for device in known}

    def add_index(self, index: str, handle: Handle | Failure) -> None:
        """Add what NVML has under an index."""
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
        """Add what NVML has in a slot; nothing where it knows of none there."""
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
    """Its normal bus id; '' where NVML does not return it."""
    info = call(pynvml.nvmlDeviceGetPciInfo, handle)
    if isinstance(info, Failure):
        return ""
    bus_id = info.busId if isinstance(info.busId, str) else info.busId.decode("ascii", "replace")
    return normal_bus_id(bus_id) if BUS_ID.fullmatch(bus_id) else ""
