"""NVML with typed results: a call that fails returns None, a lost GPU is an exception.

In: nvidia-ml-py (`pynvml`) on the driver's libnvidia-ml.so.1. Every call may hang or crash, so
only a worker may use this module. Structures and semantics: nvml.h. A GPU is lost where NVML
returns 15; 999 has other meanings too.

A call that a device does not support costs time in every run; a device that reports so by mistake
must not be without it until the worker ends. So what was absent is tried again after 1, 2, 4 … 64
runs.
"""

from __future__ import annotations

import ctypes
from collections import Counter
from collections.abc import Callable, Container, Hashable, Iterable
from typing import Any, NamedTuple

import msgspec
import pynvml

from nodevitals.linux.process import return_free_memory
from nodevitals.probe import Family, Readings
from nodevitals.probes.nvidia.families import VENDOR

LIBRARY_NOT_FOUND = pynvml.NVML_ERROR_LIBRARY_NOT_FOUND
VERSION_MISMATCH = pynvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH
NO_PERMISSION = pynvml.NVML_ERROR_NO_PERMISSION
NOT_FOUND = pynvml.NVML_ERROR_NOT_FOUND
LOST = pynvml.NVML_ERROR_GPU_IS_LOST
UNKNOWN = pynvml.NVML_ERROR_UNKNOWN
# Not one of NVML's: the call did not return before the deadline of the last run.
HANG = -1
# The errors of a call that a GPU or a driver does not have; any other error may be temporary.
UNSUPPORTED = (
    pynvml.NVML_ERROR_NOT_SUPPORTED,
    pynvml.NVML_ERROR_INVALID_ARGUMENT,
    pynvml.NVML_ERROR_FUNCTION_NOT_FOUND,
    pynvml.NVML_ERROR_ARGUMENT_VERSION_MISMATCH,
    pynvml.NVML_ERROR_DEPRECATED,
)
# After these errors, only another start of the library helps.
STALE_LIBRARY = (
    pynvml.NVML_ERROR_UNINITIALIZED,
    pynvml.NVML_ERROR_DRIVER_NOT_LOADED,
    VERSION_MISMATCH,
)
_FIELD_MEMBERS = ("dVal", "uiVal", "ulVal", "ullVal", "sllVal", "siVal", "usVal")
# No limit is documented; no other client is known to read more in one call.
FIELDS_PER_CALL = 100
_LONGEST_WAIT_RUNS = 64

Handle = Any
Field = tuple[int, int]
"""A field's id and its scope: a link's number, else 0."""


class Failure(NamedTuple):
    """A call that failed: NVML's code and the function's name; for HANG, what happened."""

    code: int
    function: str

    @property
    def unsupported(self) -> bool:
        """Whether the GPU or the driver does not have what was asked for."""
        return self.code in UNSUPPORTED

    @property
    def label(self) -> str:
        """The code as a label's value: one of NVML's, 1 to 999, or `hang`."""
        if self.code == HANG:
            return "hang"
        return str(self.code if 0 < self.code < UNKNOWN else UNKNOWN)

    def __str__(self) -> str:
        if self.code == HANG:
            return self.function
        return f"{self.function}: {pynvml.NVMLError(self.code)} ({self.code})"


class NvmlError(Exception):
    """The library as a whole does not work; `code` is NVML's."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(text)
        self.code = code
        self.text = text


class LostError(Exception):
    """The GPU is lost: the call that returned that."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(str(failure))
        self.failure = failure


class Gpu(msgspec.Struct, frozen=True):
    """A GPU that NVML has a handle for. `slot` is its normal bus id, '' where it has none (Jetson);
    `index` is '' where NVML does not return it.
    """

    slot: str
    index: str
    uuid: str
    handle: Handle


class Position:
    """The device that is read now; each call into NVML is announced with it before it is made."""

    def __init__(self) -> None:
        self.device = ""
        self.announce: Callable[[str, str], None] | None = None

    def calls(self, function: str) -> None:
        """Announce a call."""
        if self.announce is not None:
            self.announce(self.device, function)


position = Position()
"""Where this worker is: it reads one device after the other."""
failures: list[Failure] = []
"""The calls of this worker that failed, since this list was last cleared."""


def start(library: str) -> None:
    """Load the library and initialise it. Raises NvmlError."""
    try:
        pynvml.nvmlLib = ctypes.CDLL(library)
    except OSError as error:
        raise NvmlError(LIBRARY_NOT_FOUND, str(error)) from None
    require(pynvml.nvmlInit)
    return_free_memory()  # 8 MiB with driver 580


def library_version() -> str | None:
    """The library's own version, without the NVML major before it; needs no driver."""
    version = attempt(pynvml.nvmlSystemGetNVMLVersion)
    return version.partition(".")[2] if version else None


def call(function: Callable[..., Any], *arguments: Any) -> Any:
    """What a call returns, or its Failure. All calls of NVML pass here."""
    position.calls(function.__name__)
    try:
        return function(*arguments)
    except pynvml.NVMLError as error:
        failure = Failure(error.value, function.__name__)
    except (pynvml.NVMLLibraryMismatchError, ValueError):  # ValueError: text that is not UTF-8
        failure = Failure(UNKNOWN, function.__name__)
    failures.append(failure)
    return failure


def _call_unless_lost(function: Callable[..., Any], *arguments: Any) -> Any:
    result = call(function, *arguments)
    if isinstance(result, Failure) and result.code == LOST:
        raise LostError(result)
    return result


def query(function: Callable[..., Any], *arguments: Any) -> Any:
    """What a call on a GPU returns; None where it fails. Raises LostError."""
    result = _call_unless_lost(function, *arguments)
    return None if isinstance(result, Failure) else result


def attempt(function: Callable[..., Any], *arguments: Any) -> Any:
    """What a call returns that is not on one GPU; None where it fails."""
    result = call(function, *arguments)
    return None if isinstance(result, Failure) else result


def require(function: Callable[..., Any], *arguments: Any) -> Any:
    """What a call returns without which nothing works. Raises NvmlError."""
    result = call(function, *arguments)
    if isinstance(result, Failure):
        raise NvmlError(result.code, str(result))
    return result


class _Absence(NamedTuple):
    """How many runs to wait, and the run in which to ask again."""

    wait_runs: int
    again: int


class Absences:
    """The absent things of one device, by any key."""

    def __init__(self) -> None:
        self._run = 0
        self._known: dict[Hashable, _Absence] = {}

    def start_run(self) -> None:
        """Count one run."""
        self._run += 1

    def asks(self, key: Hashable) -> bool:
        """Whether to ask for this thing in this run."""
        known = self._known.get(key)
        return known is None or known.again <= self._run

    def has(self, key: Hashable) -> bool:
        """Whether a thing was absent when it was last asked for."""
        return key in self._known

    def learn(self, key: Hashable, absent: bool) -> None:
        """Record whether a thing that was asked for is absent."""
        if not absent:
            self._known.pop(key, None)
            return
        before = self._known.get(key)
        wait_runs = min(2 * before.wait_runs, _LONGEST_WAIT_RUNS) if before else 1
        self._known[key] = _Absence(wait_runs, self._run + wait_runs)


class GpuReadings:
    """One GPU, or one MIG instance of it, in one run: calls on its handle, and samples with its
    labels. Each call raises LostError where the GPU is lost.
    """

    def __init__(self, handle: Handle, readings: Readings, *labels: str) -> None:
        self.handle = handle
        self.readings = readings
        self.labels = labels

    def add(self, family: Family, value: float | None, *labels: str) -> None:
        """Add a sample of a family of this probe."""
        self.readings.add(family, value, *self.labels, *labels)

    def add_common(self, family: Family, value: float | None, *labels: str) -> None:
        """Add a sample of a family that the accelerators of all vendors have."""
        self.readings.add(family, value, VENDOR, *self.labels, *labels)

    def call(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """What a call returns, or its Failure."""
        return _call_unless_lost(function, self.handle, *arguments)

    def query(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """What a call returns; None where it fails."""
        return query(function, self.handle, *arguments)

    def query_newest(self, *calls: tuple[Any, ...]) -> Any:
        """What the first of several calls returns that the GPU and its driver have; None where it
        fails. A call that may fail for a moment is not replaced by an older one, which may count
        differently.
        """
        for function, *arguments in calls:
            result = self.call(function, *arguments)
            if not isinstance(result, Failure):
                return result
            if not result.unsupported:
                return None
        return None


def main_failure() -> Failure:
    """The failure that says most about a GPU of which nothing was read: the most frequent one, and
    one that is not `unsupported` where there is any.
    """
    telling = [failure for failure in failures if not failure.unsupported] or failures
    code, _ = (
        Counter(failure.code for failure in telling).most_common(1)[0] if telling else (UNKNOWN, 0)
    )
    return next((failure for failure in telling if failure.code == code), Failure(code, "nvml"))


class FieldReader:
    """Reads field values of one GPU. A field that the GPU does not have is seldom asked again."""

    def __init__(self, fields: Iterable[Field] = ()) -> None:
        self._fields = dict.fromkeys(fields)
        self._absences = Absences()
        self._read_before: set[Field] = set()

    def add(self, fields: Iterable[Field]) -> None:
        """Read these too, from now on."""
        self._fields |= dict.fromkeys(fields)

    def lacks(self, field: Field) -> bool:
        """Whether the GPU said that it does not have this field."""
        return self._absences.has(field)

    def has(self, field: Field) -> bool:
        """Whether the GPU has this field: it was read, and not denied since."""
        return field in self._read_before and not self.lacks(field)

    def read(self, gpu: GpuReadings, unused: Container[Field] = ()) -> dict[Field, float]:
        """The values that there are now; `unused` ones are not asked for. Raises LostError."""
        numbers: dict[Field, float] = {}
        self._absences.start_run()
        asks = self._absences.asks
        asked = [field for field in self._fields if field not in unused and asks(field)]
        for first in range(0, len(asked), FIELDS_PER_CALL):
            some = asked[first : first + FIELDS_PER_CALL]
            values = gpu.query(pynvml.nvmlDeviceGetFieldValues, some) or ()
            for field, value in zip(some, values):
                code = value.nvmlReturn
                if code != pynvml.NVML_SUCCESS:
                    failure = Failure(code, "nvmlDeviceGetFieldValues")
                    failures.append(failure)
                    if code == LOST:
                        raise LostError(failure)
                    self._absences.learn(field, code in UNSUPPORTED)
                    continue
                kind = value.valueType
                if 0 <= kind < len(_FIELD_MEMBERS):
                    numbers[field] = float(getattr(value.value, _FIELD_MEMBERS[kind]))
                self._absences.learn(field, absent=False)
        self._read_before.update(numbers)
        return numbers
