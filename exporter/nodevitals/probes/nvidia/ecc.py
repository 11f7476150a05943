"""Memory errors of a GPU, and the rows and pages that the driver took out of use for them."""

from __future__ import annotations

import ctypes

import pynvml

from nodevitals.probe import Readings
from nodevitals.probes.common import accelerators
from nodevitals.probes.common.accelerators import ECC_KINDS, ECC_LIFETIMES
from nodevitals.probes.nvidia.families import (
    REMAPPED_ROWS,
    RETIRED_PAGES,
    RETIRED_PAGES_PENDING,
    ROW_REMAP_FAILURE,
    ROW_REMAP_PENDING,
    SRAM_THRESHOLD,
    VENDOR,
)
from nodevitals.probes.nvidia.nvml import Handle, query

_SRAM = 7
_SRAM_AND_DRAM = (("sram", _SRAM), ("dram", 2))
_OLD_LOCATIONS = (
    *(("l1_cache", 0), ("l2_cache", 1), ("dram", 2), ("register_file", 3)),
    *(("texture_memory", 4), ("shared_memory", 5), ("cbu", 6)),
)


class EccReader:
    """Reads the memory errors of one GPU, by location where it counts them so."""

    def __init__(self) -> None:
        self._locations: tuple[tuple[str, int], ...] = ()

    def read(self, handle: Handle, readings: Readings, labels: tuple[str, ...]) -> None:
        """Read all counts. Raises LostError."""
        # Determined once: were a location to fail for a moment, its count would move to another.
        self._locations = self._locations or _locations(handle)
        for kind_number, kind in enumerate(ECC_KINDS):
            for lifetime_number, lifetime in enumerate(ECC_LIFETIMES):
                which = (handle, kind_number, lifetime_number)
                series = (VENDOR, *labels, kind, lifetime)
                for name, number in self._locations:
                    count = query(pynvml.nvmlDeviceGetMemoryErrorCounter, *which, number)
                    readings.add(accelerators.ECC_ERRORS, count, *series, name)
                if not self._locations:
                    count = query(pynvml.nvmlDeviceGetTotalEccErrors, *which)
                    readings.add(accelerators.ECC_ERRORS, count, *series, "all")
        _read_sram_threshold(handle, readings, labels)


def _locations(handle: Handle) -> tuple[tuple[str, int], ...]:
    """What a GPU counts separately: SRAM and DRAM since Ampere, each structure before it."""

    def counts(number: int) -> bool:
        return query(pynvml.nvmlDeviceGetMemoryErrorCounter, handle, 1, 0, number) is not None

    if counts(_SRAM):
        return _SRAM_AND_DRAM
    return tuple((name, number) for name, number in _OLD_LOCATIONS if counts(number))


def _read_sram_threshold(handle: Handle, readings: Readings, labels: tuple[str, ...]) -> None:
    status = pynvml.c_nvmlEccSramErrorStatus_v1_t()
    function = pynvml.nvmlDeviceGetSramEccErrorStatus  # for root only
    if query(function, handle, ctypes.byref(status)) is not None:
        readings.add(SRAM_THRESHOLD, bool(status.bThresholdExceeded), *labels)


def read_repairs(handle: Handle, readings: Readings, labels: tuple[str, ...]) -> None:
    """Read the remapped rows, or on Volta and older the retired pages. Raises LostError."""
    remapped = query(pynvml.nvmlDeviceGetRemappedRows, handle)
    if remapped is not None:
        corrected, uncorrected, pending, failed = remapped
        readings.add(REMAPPED_ROWS, corrected, *labels, "corrected")
        readings.add(REMAPPED_ROWS, uncorrected, *labels, "uncorrected")
        readings.add(ROW_REMAP_PENDING, bool(pending), *labels)
        readings.add(ROW_REMAP_FAILURE, bool(failed), *labels)
        return  # a GPU that remaps rows retires no pages
    for number, cause in enumerate(RETIRED_PAGES.closed["cause"]):
        pages = query(pynvml.nvmlDeviceGetRetiredPages, handle, number)
        readings.add(RETIRED_PAGES, None if pages is None else len(pages), *labels, cause)
    pending = query(pynvml.nvmlDeviceGetRetiredPagesPendingStatus, handle)
    readings.add(RETIRED_PAGES_PENDING, pending, *labels)
