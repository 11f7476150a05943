"""Memory errors of a GPU, and the rows and pages that the driver took out of use for them."""

from __future__ import annotations

import ctypes

import pynvml

from nodevitals.probe import Readings
from nodevitals.probes.common import accelerators
from nodevitals.probes.common.accelerators import ECC_KINDS, ECC_LIFETIMES
from nodevitals.probes.nvidia.absences import Absences
from nodevitals.probes.nvidia.families import (
    REMAP_BANKS,
    REMAPPED_ROWS,
    RETIRED_PAGES,
    RETIRED_PAGES_PENDING,
    ROW_REMAP_FAILURE,
    ROW_REMAP_PENDING,
    SRAM_THRESHOLD,
    VENDOR,
)
from nodevitals.probes.nvidia.nvml import Failure, Handle, call, query, raise_if_lost

_SRAM = 7
_SRAM_AND_DRAM = (("sram", _SRAM), ("dram", 2))
_OLD_LOCATIONS = (
    *(("l1_cache", 0), ("l2_cache", 1), ("dram", 2), ("register_file", 3)),
    *(("texture_memory", 4), ("shared_memory", 5), ("cbu", 6)),
)


_Locations = tuple[tuple[str, int], ...]


class EccReader:
    """Reads the memory errors of one GPU, by location where it counts them so."""

    def __init__(self) -> None:
        self._absences = Absences()
        self._locations: _Locations | None = None

    def read(self, handle: Handle, readings: Readings, labels: tuple[str, ...]) -> None:
        """Read all counts. Raises LostError."""
        self._find_locations(handle)
        if self._locations is not None:
            _read_counts(handle, self._locations, readings, labels)
        _read_sram_threshold(handle, readings, labels)

    def _find_locations(self, handle: Handle) -> None:
        """Find what the GPU counts separately. What was absent is looked for again."""
        self._absences.start_run()
        if self._locations == _SRAM_AND_DRAM or not self._absences.asks(_SRAM):
            return
        locations = _locations(handle)
        if locations is not None:
            self._locations = locations
            self._absences.learn(_SRAM, locations != _SRAM_AND_DRAM)


def _locations(handle: Handle) -> _Locations | None:
    """What a GPU counts separately: SRAM and DRAM since Ampere, each structure before it. None
    where a call failed that may succeed later: were one location missing, its count would move to
    another.
    """
    sram = _counts(handle, _SRAM)
    if sram is None:
        return None
    if sram:
        return _SRAM_AND_DRAM
    old = [(location, _counts(handle, location[1])) for location in _OLD_LOCATIONS]
    if any(counted is None for _, counted in old):
        return None
    return tuple(location for location, counted in old if counted)


def _read_counts(
    handle: Handle, locations: _Locations, readings: Readings, labels: tuple[str, ...]
) -> None:
    """Read the counts of these locations; where there are none, those of all together."""
    for kind_number, kind in enumerate(ECC_KINDS):
        for lifetime_number, lifetime in enumerate(ECC_LIFETIMES):
            which = (handle, kind_number, lifetime_number)
            series = (VENDOR, *labels, kind, lifetime)
            for name, number in locations:
                count = query(pynvml.nvmlDeviceGetMemoryErrorCounter, *which, number)
                readings.add(accelerators.ECC_ERRORS, count, *series, name)
            if not locations:
                count = query(pynvml.nvmlDeviceGetTotalEccErrors, *which)
                readings.add(accelerators.ECC_ERRORS, count, *series, "all")


def _counts(handle: Handle, location: int) -> bool | None:
    """Whether a GPU counts the errors of a location; None where that is not known."""
    result = call(pynvml.nvmlDeviceGetMemoryErrorCounter, handle, 1, 0, location)
    if not isinstance(result, Failure):
        return True
    raise_if_lost([result])
    return False if result.unsupported else None


def _read_sram_threshold(handle: Handle, readings: Readings, labels: tuple[str, ...]) -> None:
    status = pynvml.c_nvmlEccSramErrorStatus_v1_t()
    function = pynvml.nvmlDeviceGetSramEccErrorStatus  # for root only
    if query(function, handle, ctypes.byref(status)) is not None:
        readings.add(SRAM_THRESHOLD, bool(status.bThresholdExceeded), *labels)


def read_repairs(handle: Handle, readings: Readings, labels: tuple[str, ...]) -> None:
    """Read the remapped rows, or on Volta and older the retired pages. Raises LostError."""
    banks = query(pynvml.nvmlDeviceGetRowRemapperHistogram, handle)
    for spare_rows in REMAP_BANKS.closed["spare_rows"] if banks else ():
        readings.add(REMAP_BANKS, getattr(banks, spare_rows), *labels, spare_rows)
    remapped = call(pynvml.nvmlDeviceGetRemappedRows, handle)
    if not isinstance(remapped, Failure):
        corrected, uncorrected, pending, failed = remapped
        readings.add(REMAPPED_ROWS, corrected, *labels, "corrected")
        readings.add(REMAPPED_ROWS, uncorrected, *labels, "uncorrected")
        readings.add(ROW_REMAP_PENDING, bool(pending), *labels)
        readings.add(ROW_REMAP_FAILURE, bool(failed), *labels)
        return  # a GPU that remaps rows retires no pages
    raise_if_lost([remapped])
    if not remapped.unsupported:
        return
    for number, cause in enumerate(RETIRED_PAGES.closed["cause"]):
        pages = query(pynvml.nvmlDeviceGetRetiredPages, handle, number)
        readings.add(RETIRED_PAGES, None if pages is None else len(pages), *labels, cause)
    pending = query(pynvml.nvmlDeviceGetRetiredPagesPendingStatus, handle)
    readings.add(RETIRED_PAGES_PENDING, pending, *labels)
