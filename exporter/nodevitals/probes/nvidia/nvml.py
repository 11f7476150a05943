"""NVML with typed results: a call that fails returns None, a lost GPU is an exception.

In: nvidia-ml-py (`pynvml`) on the driver's libnvidia-ml.so.1. Every call may hang or crash, so
only a worker may use this module. Structures and semantics: nvml.h. A GPU is lost where NVML
returns 15; 999 has other meanings too.

An unsupported call costs time in every run, but a device may report a call as unsupported by
mistake. So such a call is tried again after 1, 2, 4 … 64 runs.
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
# Not a code of NVML: the call did not return before the deadline of the last run.
HANG = -1
# The errors of a call that a GPU or a driver does not have; any other error may be temporary.
UNSUPPORTED = (
    pynvml.NVML_ERROR_NOT_SUPPORTED,
    pynvml.NVML_ERROR_INVALID_ARGUMENT,
    pynvml.NVML_ERROR_FUNCTION_NOT_FOUND,
    pynvml.NVML_ERROR_ARGUMENT_VERSION_MISMATCH,
    pynvml.NVML_ERROR_DEPRECATED,
)
# After these errors, the library must be started again.
STALE_LIBRARY = (
    pynvml.NVML_ERROR_UNINITIALIZED,
    pynvml.NVML_ERROR_DRIVER_NOT_LOADED,
    VERSION_MISMATCH,
)
_FIELD_MEMBERS = ("dVal", "uiVal", "ulVal", "ullVal", "sllVal", "siVal", "usVal")
# No limit is documented; no known client reads more in one call.
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
        """Whether the GPU or the driver does not support the call."""
        return self.code in UNSUPPORTED

    @property
    def label(self) -> str:
        """The code as the value of a label: a code of NVML, 1 to 999, or `hang`."""
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
    """The GPU is lost; has the call that reported it."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(str(failure))
        self.failure = failure


class Gpu(msgspec.Struct, frozen=True):
    """A GPU that NVML has a handle for. `slot` is its normal bus id, '' if it has none (Jetson);
    `index` is '' if NVML does not return it.
    """

    slot: str
    index: str
    uuid: str
    handle: Handle


class Position:
    """The device that is read now. Each call into NVML is announced with it before the call."""

    def __init__(self) -> None:
        self.device = ""
        self.announce: Callable[[str, str], None] | None = None

    def calls(self, function: str) -> None:
        """Announce a call."""
        if self.announce is not None:
            self.announce(self.device, function)


position = Position()
"""The position of this worker, which reads one device after the other."""
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
    """The result of a call, or its Failure. All calls of NVML go through this function."""
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
    """The result of a call on a GPU; None if it fails. Raises LostError."""
    result = _call_unless_lost(function, *arguments)
    return None if isinstance(result, Failure) else result


def attempt(function: Callable[..., Any], *arguments: Any) -> Any:
    """The result of a call that does not concern one GPU; None if it fails."""
    result = call(function, *arguments)
    return None if isinstance(result, Failure) else result


def require(function: Callable[..., Any], *arguments: Any) -> Any:
    """The result of a call that everything else needs. Raises NvmlError."""
    result = call(function, *arguments)
    if isinstance(result, Failure):
        raise NvmlError(result.code, str(result))
    return result


class _Absence(NamedTuple):
    """The number of runs to wait, and the run in which to ask again."""

    wait_runs: int
    again: int


class Absences:
    """The unsupported calls or fields of one device, by any key."""

    def __init__(self) -> None:
        self._run = 0
        self._known: dict[Hashable, _Absence] = {}

    def start_run(self) -> None:
        """Count one run."""
        self._run += 1

    def asks(self, key: Hashable) -> bool:
        """Whether to ask for this key in this run."""
        known = self._known.get(key)
        return known is None or known.again <= self._run

    def has(self, key: Hashable) -> bool:
        """Whether this key was absent at the last query."""
        return key in self._known

    def learn(self, key: Hashable, absent: bool) -> None:
        """Record whether a queried key is absent."""
        if not absent:
            self._known.pop(key, None)
            return
        before = self._known.get(key)
        wait_runs = min(2 * before.wait_runs, _LONGEST_WAIT_RUNS) if before else 1
        self._known[key] = _Absence(wait_runs, self._run + wait_runs)


class GpuReadings:
    """One GPU, or one MIG instance of it, in one run: calls on its handle, and samples with its
    labels. Each call raises LostError if the GPU is lost.
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
        """The result of a call, or its Failure."""
        return _call_unless_lost(function, self.handle, *arguments)

    def query(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """The result of a call; None if it fails."""
        return query(function, self.handle, *arguments)

    def query_newest(self, *calls: tuple[Any, ...]) -> Any:
        """The result of the first of several calls that the GPU and its driver support; None if it
        fails. An older call, which may count differently, does not replace a call that failed for
        a moment.
        """
        for function, *arguments in calls:
            result = self.call(function, *arguments)
            if not isinstance(result, Failure):
                return result
            if not result.unsupported:
                return None
        return None


def main_failure() -> Failure:
    """The failure to report for a GPU without any value: the most frequent one, preferably not
    `unsupported`.
    """
    telling = [failure for failure in failures if not failure.unsupported] or failures
    code, _ = (
        Counter(failure.code for failure in telling).most_common(1)[0] if telling else (UNKNOWN, 0)
    )
    return next((failure for failure in telling if failure.code == code), Failure(code, "nvml"))


class FieldReader:
    """Reads field values of one GPU. A field that the GPU lacks is seldom queried again."""

    def __init__(self, fields: Iterable[Field] = ()) -> None:
        self._fields = dict.fromkeys(fields)
        self._absences = Absences()
        self._read_before: set[Field] = set()

    def add(self, fields: Iterable[Field]) -> None:
        """Read these too, from now on."""
        self._fields |= dict.fromkeys(fields)

    def lacks(self, field: Field) -> bool:
        """Whether the GPU has reported that it lacks this field."""
        return self._absences.has(field)

    def has(self, field: Field) -> bool:
        """Whether the GPU has this field: it was read and not reported as missing since."""
        return field in self._read_before and not self.lacks(field)

    def read(self, gpu: GpuReadings, unused: Container[Field] = ()) -> dict[Field, float]:
        """The values of the fields now, without `unused` fields. Raises LostError."""
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
