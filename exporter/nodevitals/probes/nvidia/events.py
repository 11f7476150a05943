"""The Xids that NVML reports, beside those of the kernel log."""

from __future__ import annotations

import ctypes
from collections.abc import Iterable
from typing import Any

import pynvml

from nodevitals.probes.nvidia.nvml import Failure, Gpu, Handle, attempt, call

MAX_EVENTS_PER_RUN = 1000


class XidEvents:
    """NVML's queue of Xids, which the driver fills for every client that registers."""

    def __init__(self) -> None:
        self._set: Any = None
        self._registered: set[str] = set()
        self._slots: dict[int, str] = {}

    def register(self, gpus: Iterable[Gpu]) -> None:
        """Register for the Xids of these GPUs; of those that were lost in between, again."""
        by_uuid = {gpu.uuid: gpu for gpu in gpus}
        self._registered &= by_uuid.keys()
        if self._set is None:
            self._set = attempt(pynvml.nvmlEventSetCreate)
        if self._set is None:
            return
        for uuid in by_uuid.keys() - self._registered:
            gpu = by_uuid[uuid]
            kind = pynvml.nvmlEventTypeXidCriticalError
            result = call(pynvml.nvmlDeviceRegisterEvents, gpu.handle, kind, self._set)
            if isinstance(result, Failure):
                continue  # the kernel log is the first source anyway
            self._registered.add(uuid)
            self._slots[_address(gpu.handle)] = gpu.slot

    def drain(self) -> list[tuple[str, int]]:
        """Slot and code of each Xid since the last call."""
        xids: list[tuple[str, int]] = []
        while self._set is not None and len(xids) < MAX_EVENTS_PER_RUN:
            event = call(pynvml.nvmlEventSetWait, self._set, 0)
            if isinstance(event, Failure):
                if event.code != pynvml.NVML_ERROR_TIMEOUT:
                    self.close()  # the set of a GPU that was lost is of no more use
                break
            slot = self._slots.get(_address(event.device))
            if slot:
                xids.append((slot, int(event.eventData)))
        return xids

    def close(self) -> None:
        """Free the set; the next `register` creates another."""
        if self._set is not None:
            attempt(pynvml.nvmlEventSetFree, self._set)
        self._set, self._registered = None, set()


def _address(handle: Handle) -> int:
    return ctypes.cast(handle, ctypes.c_void_p).value or 0
