"""Everything that the probe `nvidia` reads of one GPU: load, slowdowns, memory errors and repairs.

Nothing is assumed to be supported: where a call fails, its family is missing, and nothing else.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any, NamedTuple

import pynvml

from nodevitals.probes.common import accelerators
from nodevitals.probes.common.accelerators import ECC_KINDS, ECC_LIFETIMES
from nodevitals.probes.common.nvidia import RECOVERY_ACTIONS
from nodevitals.probes.nvidia.families import (
    MEMORY_TEMPERATURE,
    MEMORY_WITHOUT_JOB,
    MODE_INFO,
    PCIE_GENERATION,
    PCIE_GENERATION_MAX,
    PCIE_REPLAYS,
    PCIE_WIDTH,
    PCIE_WIDTH_MAX,
    POWER_LIMIT,
    PROCESSES_WITHOUT_JOB,
    RECOVERY_ACTION,
    REMAP_BANKS,
    REMAPPED_ROWS,
    RETIRED_PAGES,
    RETIRED_PAGES_PENDING,
    ROW_REMAP_FAILURE,
    ROW_REMAP_PENDING,
    SLOWDOWN_ACTIVE,
    SLOWDOWN_SECONDS,
    SM_CLOCK,
    SRAM_THRESHOLD,
    TEMPERATURE_MARGIN,
)
from nodevitals.probes.nvidia.nvlink import LINK_COUNT, Links, NvlinkReader, read_fabric
from nodevitals.probes.nvidia.nvml import (
    Absences,
    Failure,
    Field,
    FieldReader,
    GpuReadings,
)
from nodevitals.probes.nvidia.owners import ProcessOwners
from nodevitals.probes.nvidia.usage import UsageOptions, UsageReader

_Fields = tuple[tuple[str, Field], ...]

# Values are in nanoseconds.
_POWER_CAP: _Fields = (("sw_power_cap", (pynvml.NVML_FI_DEV_PERF_POLICY_POWER, 0)),)
# The only thermal reason of older GPUs.
_OLD_THERMAL: Field = (pynvml.NVML_FI_DEV_PERF_POLICY_THERMAL, 0)
_REASONS = ("sw_thermal", "hw_thermal", "hw_power_brake")
# The id of the first of these reasons, by the first driver with that id: docs/nvml-fields.md. With
# other drivers, the same ids are settings of power smoothing.
_FIRST_IDS = (((580, 82), 269), ((575, 0), 251))
# Without the power cap (0x4), which is normal for a busy GPU; its seconds are counted.
_BITS = (("hw_thermal", 0x40), ("hw_power_brake", 0x80), ("sw_thermal", 0x20))
# Set together with one of the two hardware reasons above; alone on GPUs that lack these reasons.
_HW_SLOWDOWN_BIT, _HW_REASONS = 0x8, 0x40 | 0x80


def slowdown_fields(driver_version: str) -> _Fields:
    """The fields with the time of each slowdown with this driver. If the driver's version is
    unknown, renumbered fields are left out.
    """
    numbers = driver_version.split(".")[:2]
    version = tuple(int(number) for number in numbers if number.isdecimal())
    for since, first in _FIRST_IDS:
        if version >= since:
            renumbered = tuple((reason, (first + n, 0)) for n, reason in enumerate(_REASONS))
            return _POWER_CAP + renumbered
    return _POWER_CAP


class SlowdownReader:
    """Reads the slowdowns of a GPU under one driver."""

    def __init__(self, driver_version: str) -> None:
        self._by_reason = slowdown_fields(driver_version)
        self.fields: tuple[Field, ...] = (_OLD_THERMAL, *(field for _, field in self._by_reason))
        """The fields whose values `read` takes."""

    def unused(self, has: Callable[[Field], bool]) -> tuple[Field, ...]:
        """The fields that `read` does not need on a GPU that has the fields for which `has` is
        true: the old field costs 1.1 ms on an H200.
        """
        new = any(reason == "sw_thermal" and has(field) for reason, field in self._by_reason)
        return (_OLD_THERMAL,) if new else ()

    def read(
        self, gpu: GpuReadings, fields: dict[Field, float], lacks: Callable[[Field], bool]
    ) -> None:
        """Read the present reasons and the time of each; `lacks` says which fields the GPU does
        not have. Raises LostError.
        """
        _read_active(gpu)
        times = list(self._by_reason)
        if all(reason != "sw_thermal" or lacks(field) for reason, field in times):
            times.append(("thermal", _OLD_THERMAL))
        for reason, field in times:
            if field in fields:
                gpu.add(SLOWDOWN_SECONDS, fields[field] * 1e-9, reason)


def _read_active(gpu: GpuReadings) -> None:
    reasons = gpu.query_newest(
        (pynvml.nvmlDeviceGetCurrentClocksEventReasons,),
        (pynvml.nvmlDeviceGetCurrentClocksThrottleReasons,),  # the function's name up to driver 530
    )
    if reasons is None:
        return
    for reason, bit in _BITS:
        gpu.add(SLOWDOWN_ACTIVE, bool(reasons & bit), reason)
    if reasons & _HW_SLOWDOWN_BIT and not reasons & _HW_REASONS:
        gpu.add(SLOWDOWN_ACTIVE, 1, "hw_slowdown")


_SRAM = 7
_SRAM_AND_DRAM = (("sram", _SRAM), ("dram", 2))
_OLD_LOCATIONS = (
    *(("l1_cache", 0), ("l2_cache", 1), ("dram", 2), ("register_file", 3)),
    *(("texture_memory", 4), ("shared_memory", 5), ("cbu", 6)),
)


_Locations = tuple[tuple[str, int], ...]


class EccReader:
    """Reads the memory errors of one GPU, by location if the GPU counts them by location."""

    def __init__(self) -> None:
        self._absences = Absences()
        self._locations: _Locations | None = None

    def read(self, gpu: GpuReadings) -> None:
        """Read all counts. Raises LostError."""
        self._find_locations(gpu)
        if self._locations is not None:
            _read_counts(gpu, self._locations)
        _read_sram_threshold(gpu)

    def _find_locations(self, gpu: GpuReadings) -> None:
        """Find the locations that the GPU counts separately. Absent ones are looked for again."""
        self._absences.start_run()
        if self._locations == _SRAM_AND_DRAM or not self._absences.asks(_SRAM):
            return
        locations = _locations(gpu)
        if locations is not None:
            self._locations = locations
            self._absences.learn(_SRAM, locations != _SRAM_AND_DRAM)


def _locations(gpu: GpuReadings) -> _Locations | None:
    """The locations that a GPU counts separately: SRAM and DRAM since Ampere, each structure before
    that. None if a call failed that may succeed later: if one location were missing, its count
    would move to another.
    """
    sram = _counts(gpu, _SRAM)
    if sram is None:
        return None
    if sram:
        return _SRAM_AND_DRAM
    old = [(location, _counts(gpu, location[1])) for location in _OLD_LOCATIONS]
    if any(counted is None for _, counted in old):
        return None
    return tuple(location for location, counted in old if counted)


def _read_counts(gpu: GpuReadings, locations: _Locations) -> None:
    """Read the counts of these locations; without locations, the counts of all together."""
    for kind_number, kind in enumerate(ECC_KINDS):
        for lifetime_number, lifetime in enumerate(ECC_LIFETIMES):
            which = (kind_number, lifetime_number)
            for name, number in locations:
                count = gpu.query(pynvml.nvmlDeviceGetMemoryErrorCounter, *which, number)
                gpu.add_common(accelerators.ECC_ERRORS, count, kind, lifetime, name)
            if not locations:
                count = gpu.query(pynvml.nvmlDeviceGetTotalEccErrors, *which)
                gpu.add_common(accelerators.ECC_ERRORS, count, kind, lifetime, "all")


def _counts(gpu: GpuReadings, location: int) -> bool | None:
    """Whether a GPU counts the errors of a location; None if that is not known."""
    result = gpu.call(pynvml.nvmlDeviceGetMemoryErrorCounter, 1, 0, location)
    if not isinstance(result, Failure):
        return True
    return False if result.unsupported else None


def _read_sram_threshold(gpu: GpuReadings) -> None:
    status = pynvml.c_nvmlEccSramErrorStatus_v1_t()
    function = pynvml.nvmlDeviceGetSramEccErrorStatus  # for root only
    if gpu.query(function, ctypes.byref(status)) is not None:
        gpu.add(SRAM_THRESHOLD, bool(status.bThresholdExceeded))


def read_repairs(gpu: GpuReadings) -> None:
    """Read the remapped rows, or on Volta and older the retired pages. Raises LostError."""
    banks = gpu.query(pynvml.nvmlDeviceGetRowRemapperHistogram)
    for spare_rows in REMAP_BANKS.closed["spare_rows"] if banks else ():
        gpu.add(REMAP_BANKS, getattr(banks, spare_rows), spare_rows)
    remapped = gpu.call(pynvml.nvmlDeviceGetRemappedRows)
    if not isinstance(remapped, Failure):
        corrected, uncorrected, pending, failed = remapped
        gpu.add(REMAPPED_ROWS, corrected, "corrected")
        gpu.add(REMAPPED_ROWS, uncorrected, "uncorrected")
        gpu.add(ROW_REMAP_PENDING, bool(pending))
        gpu.add(ROW_REMAP_FAILURE, bool(failed))
        return  # a GPU that remaps rows retires no pages
    if not remapped.unsupported:
        return
    for number, cause in enumerate(RETIRED_PAGES.closed["cause"]):
        pages = gpu.query(pynvml.nvmlDeviceGetRetiredPages, number)
        gpu.add(RETIRED_PAGES, None if pages is None else len(pages), cause)
    pending = gpu.query(pynvml.nvmlDeviceGetRetiredPagesPendingStatus)
    gpu.add(RETIRED_PAGES_PENDING, pending)


_RECOVERY: Field = (pynvml.NVML_FI_DEV_GET_GPU_RECOVERY_ACTION, 0)
_MEMORY_TEMPERATURE: Field = (pynvml.NVML_FI_DEV_MEMORY_TEMP, 0)


class GpuStatus(NamedTuple):
    """The values of a GPU that the probe itself needs: its links, and NVIDIA's name of the recovery
    action ('' if the driver reports none).
    """

    links: Links
    recovery: str


class GpuReader:
    """Reads one GPU; seldom repeats calls that the GPU does not support."""

    def __init__(self, errors_by_link: bool, usage: UsageOptions, owners: ProcessOwners) -> None:
        self._fields = FieldReader([_RECOVERY, _MEMORY_TEMPERATURE, LINK_COUNT])
        self._ecc = EccReader()
        self._nvlink = NvlinkReader(errors_by_link)
        self._usage = UsageReader(usage)
        self._owners = owners

    def read(self, gpu: GpuReadings, driver_version: str) -> GpuStatus:
        """Read everything the GPU has; add nothing if nothing was read. Raises LostError."""
        mark = gpu.readings.mark()
        slowdown = SlowdownReader(driver_version)
        self._fields.add(slowdown.fields)
        fields = self._fields.read(gpu, slowdown.unused(self._fields.has))
        _read_load(gpu, self._owners)
        _read_temperature(gpu, fields)
        _read_power(gpu)
        _read_modes(gpu)
        self._ecc.read(gpu)
        read_repairs(gpu)
        links = self._nvlink.read(gpu, fields)
        read_fabric(gpu)
        _read_pcie(gpu)
        slowdown.read(gpu, fields, self._fields.lacks)
        self._usage.read(gpu, gpu.readings.mark() > mark)
        return GpuStatus(links, _report_recovery(gpu, fields))


def _read_load(gpu: GpuReadings, owners: ProcessOwners) -> None:
    rates = gpu.query(pynvml.nvmlDeviceGetUtilizationRates)
    gpu.add_common(accelerators.UTILIZATION, rates and rates.gpu / 100)
    function = pynvml.nvmlDeviceGetMemoryInfo
    memory = gpu.query_newest((function, pynvml.nvmlMemory_v2), (function,))
    if memory is not None:
        gpu.add_common(accelerators.MEMORY_USED, memory.used)
        gpu.add_common(accelerators.MEMORY_TOTAL, memory.total)
    processes = gpu.query(pynvml.nvmlDeviceGetComputeRunningProcesses)
    gpu.add_common(accelerators.PROCESSES, None if processes is None else len(processes))
    held = owners.held(processes)
    if held is not None:
        gpu.add_common(MEMORY_WITHOUT_JOB, held.memory_bytes)
        gpu.add_common(PROCESSES_WITHOUT_JOB, held.processes)


def _read_temperature(gpu: GpuReadings, fields: dict[Field, float]) -> None:
    temperature = gpu.query(pynvml.nvmlDeviceGetTemperature, pynvml.NVML_TEMPERATURE_GPU)
    gpu.add_common(accelerators.TEMPERATURE, temperature)
    gpu.add(TEMPERATURE_MARGIN, _margin(gpu, temperature))
    gpu.add(MEMORY_TEMPERATURE, fields.get(_MEMORY_TEMPERATURE))


def _margin(gpu: GpuReadings, temperature: int | None) -> float | None:
    """Hopper and later report only the margin, older GPUs only the threshold."""
    margin = gpu.query(pynvml.nvmlDeviceGetMarginTemperature)
    if margin is not None:
        return float(margin)
    which = pynvml.NVML_TEMPERATURE_THRESHOLD_SLOWDOWN
    threshold = gpu.query(pynvml.nvmlDeviceGetTemperatureThreshold, which)
    if threshold is None or temperature is None:
        return None
    return float(threshold - temperature)


def _read_power(gpu: GpuReadings) -> None:
    power = _scaled(gpu.query(pynvml.nvmlDeviceGetPowerUsage), 1e-3)
    gpu.add_common(accelerators.POWER, power)
    limit = _scaled(gpu.query(pynvml.nvmlDeviceGetEnforcedPowerLimit), 1e-3)
    gpu.add(POWER_LIMIT, limit)
    clock = _scaled(gpu.query(pynvml.nvmlDeviceGetClockInfo, pynvml.NVML_CLOCK_SM), 1e6)
    gpu.add(SM_CLOCK, clock)


def _scaled(value: float | None, factor: float) -> float | None:
    return None if value is None else value * factor


def _read_modes(gpu: GpuReadings) -> None:
    """Read the modes. A mode that could not be read differs from a mode that the GPU lacks."""
    modes = [
        gpu.call(pynvml.nvmlDeviceGetPersistenceMode),
        gpu.call(pynvml.nvmlDeviceGetMigMode),
        gpu.call(pynvml.nvmlDeviceGetEccMode),
    ]
    failed = [mode for mode in modes if isinstance(mode, Failure)]
    if len(failed) == len(modes) or not all(mode.unsupported for mode in failed):
        return
    gpu.add(MODE_INFO, 1, *map(_word, modes))


def _word(mode: Any) -> str:
    if isinstance(mode, Failure):
        return ""
    current = mode[0] if isinstance(mode, list) else mode
    return "on" if current else "off"


def _read_pcie(gpu: GpuReadings) -> None:
    for family, function in (
        (PCIE_WIDTH, pynvml.nvmlDeviceGetCurrPcieLinkWidth),
        (PCIE_WIDTH_MAX, pynvml.nvmlDeviceGetMaxPcieLinkWidth),
        (PCIE_GENERATION, pynvml.nvmlDeviceGetCurrPcieLinkGeneration),
        (PCIE_GENERATION_MAX, pynvml.nvmlDeviceGetMaxPcieLinkGeneration),
        (PCIE_REPLAYS, pynvml.nvmlDeviceGetPcieReplayCounter),
    ):
        gpu.add(family, gpu.query(function))


def _report_recovery(gpu: GpuReadings, fields: dict[Field, float]) -> str:
    code = fields.get(_RECOVERY)
    if code is None:
        return ""
    known = RECOVERY_ACTIONS.get(int(code))
    gpu.add_common(accelerators.HEALTHY, int(code) == 0)
    if known is None:
        return f"recovery_action_{int(code)}"
    gpu.add(RECOVERY_ACTION, 1, *known)
    return known[0]
