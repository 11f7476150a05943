"""NVML with typed results: a call that fails returns None, a lost GPU is an exception.

In: nvidia-ml-py (`pynvml`) on the driver's libnvidia-ml.so.1. Every call may hang or crash, so
only a worker may use this module. Structures and semantics: nvml.h. For a lost GPU, calls return
15, or with many drivers 999, which also has other meanings.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import msgspec
import pynvml

from nodevitals.probes.common.nvidia import normal_bus_id

NO_PERMISSION = pynvml.NVML_ERROR_NO_PERMISSION
LIBRARY_NOT_FOUND = pynvml.NVML_ERROR_LIBRARY_NOT_FOUND
VERSION_MISMATCH = pynvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH
_LOST = (pynvml.NVML_ERROR_GPU_IS_LOST,)
LOST_OR_UNKNOWN = (*_LOST, pynvml.NVML_ERROR_UNKNOWN)
# The errors of a field that a GPU does not have; any other error may be temporary.
_UNSUPPORTED = (
    pynvml.NVML_ERROR_NOT_SUPPORTED,
    pynvml.NVML_ERROR_INVALID_ARGUMENT,
    pynvml.NVML_ERROR_FUNCTION_NOT_FOUND,
)
_FIELD_MEMBERS = ("dVal", "uiVal", "ulVal", "ullVal", "sllVal", "siVal", "usVal")
MAX_EVENTS_PER_RUN = 1000
# No limit is documented; no other client is known to read more in one call.
FIELDS_PER_CALL = 100

Handle = Any
Field = tuple[int, int]
"""A field's id and its scope: a link's number, else 0."""


class NvmlError(Exception):
    """The library as a whole does not work; `code` is NVML's."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(text)
        self.code = code
        self.text = text


class LostError(Exception):
    """The GPU is lost; `code` is NVML's."""

    def __init__(self, code: int) -> None:
        super().__init__(f"NVML error {code}")
        self.code = code


class Gpu(msgspec.Struct, frozen=True):
    """A GPU that NVML has a handle for: `slot` is its normal bus id."""

    slot: str
    index: int
    uuid: str
    handle: Handle


def start(library: str) -> None:
    """Load the library and initialise it. Raises NvmlError."""
    try:
        pynvml.nvmlLib = ctypes.CDLL(library)
    except OSError as error:
        raise NvmlError(LIBRARY_NOT_FOUND, str(error)) from None
    _required(pynvml.nvmlInit)


def library_version() -> str | None:
    """The library's own version, without the NVML major before it; needs no driver."""
    version = query(pynvml.nvmlSystemGetNVMLVersion)
    return version.partition(".")[2] if version else None


def query(function: Callable[..., Any], *arguments: Any) -> Any:
    """What a call returns; None where it fails. Raises LostError."""
    try:
        return function(*arguments)
    except pynvml.NVMLError as error:
        if error.value in _LOST:
            raise LostError(error.value) from None
        return None
    except (pynvml.NVMLLibraryMismatchError, ValueError):  # ValueError: text that is not UTF-8
        return None


def _required(function: Callable[..., Any], *arguments: Any) -> Any:
    try:
        return function(*arguments)
    except pynvml.NVMLError as error:
        raise NvmlError(error.value, str(error)) from None


def gpus() -> list[Gpu]:
    """The GPUs that answer, in the library's order. Raises NvmlError."""
    found = []
    for index in range(_required(pynvml.nvmlDeviceGetCount)):
        try:
            found.append(_gpu(pynvml.nvmlDeviceGetHandleByIndex(index)))
        except (pynvml.NVMLError, ValueError):
            continue  # `gpu_at` its bus id returns why
    return found


def gpu_at(slot: str) -> Gpu | int:
    """The GPU in a slot, or NVML's error code."""
    try:
        return _gpu(pynvml.nvmlDeviceGetHandleByPciBusId(f"{slot}.0".encode()))
    except pynvml.NVMLError as error:
        code: int = error.value
        return code
    except ValueError:
        return pynvml.NVML_ERROR_UNKNOWN  # type: ignore[no-any-return]


def _gpu(handle: Handle) -> Gpu:
    info = pynvml.nvmlDeviceGetPciInfo(handle)
    return Gpu(
        normal_bus_id(_text(info.busId)),
        pynvml.nvmlDeviceGetIndex(handle),
        pynvml.nvmlDeviceGetUUID(handle),
        handle,
    )


def _text(value: bytes | str) -> str:
    return value if isinstance(value, str) else value.decode("ascii", "replace")


class FieldReader:
    """Reads field values of one GPU. Fields that the GPU does not have are read only once."""

    def __init__(self, fields: Iterable[Field]) -> None:
        self._fields: Sequence[Field] = tuple(fields)

    def read(self, handle: Handle) -> dict[Field, float]:
        """The values that there are now. Raises LostError."""
        found: dict[Field, float] = {}
        unsupported = set()
        for first in range(0, len(self._fields), FIELDS_PER_CALL):
            some = self._fields[first : first + FIELDS_PER_CALL]
            values = query(pynvml.nvmlDeviceGetFieldValues, handle, some) or ()
            for field, value in zip(some, values, strict=False):
                code = value.nvmlReturn
                if code == pynvml.NVML_SUCCESS and 0 <= value.valueType < len(_FIELD_MEMBERS):
                    found[field] = float(getattr(value.value, _FIELD_MEMBERS[value.valueType]))
                elif code in _UNSUPPORTED:
                    unsupported.add(field)
        self._fields = tuple(field for field in self._fields if field not in unsupported)
        return found


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
            self._set = query(pynvml.nvmlEventSetCreate)
        if self._set is None:
            return
        for uuid in by_uuid.keys() - self._registered:
            gpu = by_uuid[uuid]
            try:
                pynvml.nvmlDeviceRegisterEvents(
                    gpu.handle, pynvml.nvmlEventTypeXidCriticalError, self._set
                )
            except pynvml.NVMLError:
                continue  # the kernel log is the first source anyway
            self._registered.add(uuid)
            self._slots[_address(gpu.handle)] = gpu.slot

    def drain(self) -> list[tuple[str, int]]:
        """Slot and code of each Xid since the last call."""
        xids: list[tuple[str, int]] = []
        while self._set is not None and len(xids) < MAX_EVENTS_PER_RUN:
            try:
                event = pynvml.nvmlEventSetWait(self._set, 0)
            except pynvml.NVMLError as error:
                if error.value != pynvml.NVML_ERROR_TIMEOUT:
                    self._set, self._registered = None, set()
                break
            slot = self._slots.get(_address(event.device))
            if slot is not None:
                xids.append((slot, int(event.eventData)))
        return xids


def _address(handle: Handle) -> int:
    return ctypes.cast(handle, ctypes.c_void_p).value or 0
