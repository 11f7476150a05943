"""NVML, asked without trust: what it does not answer is None, what it answers is typed.

In: nvidia-ml-py (`pynvml`) on the driver's libnvidia-ml.so.1. Everything here may hang or crash
and so belongs into a worker. Structures and semantics: nvml.h; a card that is lost answers 15, or
on many drivers 999, which also stands for much else.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import msgspec
import pynvml

from nodevitals.probes.kernel_log.xid import normal_bus_id

NO_PERMISSION = pynvml.NVML_ERROR_NO_PERMISSION
LIBRARY_NOT_FOUND = pynvml.NVML_ERROR_LIBRARY_NOT_FOUND
DRIVER_NOT_LOADED = pynvml.NVML_ERROR_DRIVER_NOT_LOADED
VERSION_MISMATCH = pynvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH
_LOST = (pynvml.NVML_ERROR_GPU_IS_LOST,)
LOST_OR_UNKNOWN = (*_LOST, pynvml.NVML_ERROR_UNKNOWN)
# What a field that a card does not have answers; anything else may pass.
_NEVER = (
    pynvml.NVML_ERROR_NOT_SUPPORTED,
    pynvml.NVML_ERROR_INVALID_ARGUMENT,
    pynvml.NVML_ERROR_FUNCTION_NOT_FOUND,
)
_FIELD_MEMBERS = ("dVal", "uiVal", "ulVal", "ullVal", "sllVal", "siVal", "usVal")
MAX_EVENTS_A_RUN = 1000
# No limit is documented; nobody is known to ask for more at once.
FIELDS_A_CALL = 100

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
    """The card does not answer; `code` is NVML's."""

    def __init__(self, code: int) -> None:
        super().__init__(f"NVML error {code}")
        self.code = code


class Found(msgspec.Struct, frozen=True):
    """A card that answers: `slot` is its normal bus id."""

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
    _whole(pynvml.nvmlInit)


def library_version() -> str | None:
    """The library's own version, without the NVML major before it; needs no driver."""
    version = ask(pynvml.nvmlSystemGetNVMLVersion)
    return version.partition(".")[2] if version else None


def ask(function: Callable[..., Any], *arguments: Any) -> Any:
    """What a call returns; None where it has no answer. Raises LostError."""
    try:
        return function(*arguments)
    except pynvml.NVMLError as error:
        if error.value in _LOST:
            raise LostError(error.value) from None
        return None
    except (pynvml.NVMLLibraryMismatchError, ValueError):  # ValueError: text that is not UTF-8
        return None


def _whole(function: Callable[..., Any], *arguments: Any) -> Any:
    try:
        return function(*arguments)
    except pynvml.NVMLError as error:
        raise NvmlError(error.value, str(error)) from None


def cards() -> list[Found]:
    """The cards that answer, in the library's order. Raises NvmlError."""
    found = []
    for index in range(_whole(pynvml.nvmlDeviceGetCount)):
        try:
            handle = pynvml.nvmlDeviceGetHandleByIndex(index)
            found.append(_found(handle))
        except (pynvml.NVMLError, ValueError):
            continue  # which one it is, its bus id will tell
    return found


def card_at(slot: str) -> Found | int:
    """The card in a slot, or the code with which NVML refuses it."""
    try:
        return _found(pynvml.nvmlDeviceGetHandleByPciBusId(f"{slot}.0".encode()))
    except pynvml.NVMLError as error:
        code: int = error.value
        return code
    except ValueError:
        return pynvml.NVML_ERROR_UNKNOWN  # type: ignore[no-any-return]


def _found(handle: Handle) -> Found:
    info = pynvml.nvmlDeviceGetPciInfo(handle)
    return Found(
        normal_bus_id(_text(info.busId)),
        pynvml.nvmlDeviceGetIndex(handle),
        pynvml.nvmlDeviceGetUUID(handle),
        handle,
    )


def _text(value: bytes | str) -> str:
    return value if isinstance(value, str) else value.decode("ascii", "replace")


class FieldReader:
    """Field values of one card. Of those asked for first, it goes on with the ones that exist."""

    def __init__(self, fields: Iterable[Field]) -> None:
        self._fields: Sequence[Field] = tuple(fields)

    def read(self, handle: Handle) -> dict[Field, float]:
        """The values there are now. Raises LostError."""
        found: dict[Field, float] = {}
        never = set()
        for first in range(0, len(self._fields), FIELDS_A_CALL):
            some = self._fields[first : first + FIELDS_A_CALL]
            values = ask(pynvml.nvmlDeviceGetFieldValues, handle, some) or ()
            for field, value in zip(some, values, strict=False):
                code = value.nvmlReturn
                if code == pynvml.NVML_SUCCESS and 0 <= value.valueType < len(_FIELD_MEMBERS):
                    found[field] = float(getattr(value.value, _FIELD_MEMBERS[value.valueType]))
                elif code in _NEVER:
                    never.add(field)
        self._fields = tuple(field for field in self._fields if field not in never)
        return found


class XidEvents:
    """NVML's queue of Xids, which the driver fills for every client that registers."""

    def __init__(self) -> None:
        self._set: Any = None
        self._registered: set[str] = set()
        self._slots: dict[int, str] = {}

    def register(self, found: Iterable[Found]) -> None:
        """Ask to be told of these cards' Xids; of those that were lost in between, again."""
        by_uuid = {card.uuid: card for card in found}
        self._registered &= by_uuid.keys()
        if self._set is None:
            self._set = ask(pynvml.nvmlEventSetCreate)
        if self._set is None:
            return
        for uuid in by_uuid.keys() - self._registered:
            card = by_uuid[uuid]
            try:
                pynvml.nvmlDeviceRegisterEvents(
                    card.handle, pynvml.nvmlEventTypeXidCriticalError, self._set
                )
            except pynvml.NVMLError:
                continue  # the kernel's log is the first source anyway
            self._registered.add(uuid)
            self._slots[_address(card.handle)] = card.slot

    def drain(self) -> list[tuple[str, int]]:
        """Slot and code of each Xid since the last call."""
        heard: list[tuple[str, int]] = []
        while self._set is not None and len(heard) < MAX_EVENTS_A_RUN:
            try:
                event = pynvml.nvmlEventSetWait(self._set, 0)
            except pynvml.NVMLError as error:
                if error.value != pynvml.NVML_ERROR_TIMEOUT:
                    self._set, self._registered = None, set()
                break
            slot = self._slots.get(_address(event.device))
            if slot is not None:
                heard.append((slot, int(event.eventData)))
        return heard


def _address(handle: Handle) -> int:
    return ctypes.cast(handle, ctypes.c_void_p).value or 0
