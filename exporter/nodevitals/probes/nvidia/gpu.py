"""Everything that the probe `nvidia` reads of one GPU.

Nothing is assumed to be supported: where a call fails, its family is missing, and nothing else.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import pynvml

from nodevitals.probe import Readings
from nodevitals.probes.common import accelerators
from nodevitals.probes.common.nvidia import RECOVERY_ACTIONS
from nodevitals.probes.nvidia.ecc import EccReader, read_repairs
from nodevitals.probes.nvidia.fabric import read_fabric
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
    SM_CLOCK,
    TEMPERATURE_MARGIN,
    VENDOR,
)
from nodevitals.probes.nvidia.nvlink import LINK_COUNT, Links, NvlinkReader
from nodevitals.probes.nvidia.nvml import (
    Failure,
    Field,
    FieldReader,
    Gpu,
    Handle,
    call,
    query,
    query_newest,
    raise_if_lost,
)
from nodevitals.probes.nvidia.owners import ProcessOwners
from nodevitals.probes.nvidia.slowdown import SlowdownReader
from nodevitals.probes.nvidia.usage import UsageOptions, UsageReader

_RECOVERY: Field = (pynvml.NVML_FI_DEV_GET_GPU_RECOVERY_ACTION, 0)
_MEMORY_TEMPERATURE: Field = (pynvml.NVML_FI_DEV_MEMORY_TEMP, 0)


class GpuStatus(NamedTuple):
    """What the probe itself needs of a GPU: its links, and NVIDIA's name of the recovery action (''
    where the driver reports none).
    """

    links: Links
    recovery: str


class GpuReader:
    """Reads one GPU; does not read again what it does not have."""

    def __init__(self, errors_by_link: bool, usage: UsageOptions, owners: ProcessOwners) -> None:
        self._fields = FieldReader([_RECOVERY, _MEMORY_TEMPERATURE, LINK_COUNT])
        self._ecc = EccReader()
        self._nvlink = NvlinkReader(errors_by_link)
        self._usage = UsageReader(usage)
        self._owners = owners

    def read(self, gpu: Gpu, driver_version: str, readings: Readings) -> GpuStatus:
        """Read everything the GPU has; add nothing where nothing was read. Raises LostError."""
        labels = (gpu.index, gpu.uuid)
        handle = gpu.handle
        mark = readings.mark()
        slowdown = SlowdownReader(driver_version)
        self._fields.add(slowdown.fields)
        fields = self._fields.read(handle, slowdown.unused(self._fields.has))
        _read_load(handle, self._owners, readings, labels)
        _read_temperature(handle, fields, readings, labels)
        _read_power(handle, readings, labels)
        _read_modes(handle, readings, labels)
        self._ecc.read(handle, readings, labels)
        read_repairs(handle, readings, labels)
        links = self._nvlink.read(handle, fields, readings, labels)
        read_fabric(handle, readings, labels)
        _read_pcie(handle, readings, labels)
        slowdown.read(handle, fields, self._fields.lacks, readings, labels)
        self._usage.read(handle, readings.mark() > mark, readings, labels)
        return GpuStatus(links, _report_recovery(fields, readings, labels))


def _read_load(
    handle: Handle, owners: ProcessOwners, readings: Readings, labels: tuple[str, ...]
) -> None:
    both = (VENDOR, *labels)
    rates = query(pynvml.nvmlDeviceGetUtilizationRates, handle)
    readings.add(accelerators.UTILIZATION, rates and rates.gpu / 100, *both)
    function = pynvml.nvmlDeviceGetMemoryInfo
    memory = query_newest((function, handle, pynvml.nvmlMemory_v2), (function, handle))
    if memory is not None:
        readings.add(accelerators.MEMORY_USED, memory.used, *both)
        readings.add(accelerators.MEMORY_TOTAL, memory.total, *both)
    processes = query(pynvml.nvmlDeviceGetComputeRunningProcesses, handle)
    readings.add(accelerators.PROCESSES, None if processes is None else len(processes), *both)
    held = owners.held(processes)
    if held is not None:
        readings.add(MEMORY_WITHOUT_JOB, held.memory_bytes, *both)
        readings.add(PROCESSES_WITHOUT_JOB, held.processes, *both)


def _read_temperature(
    handle: Handle, fields: dict[Field, float], readings: Readings, labels: tuple[str, ...]
) -> None:
    temperature = query(pynvml.nvmlDeviceGetTemperature, handle, pynvml.NVML_TEMPERATURE_GPU)
    readings.add(accelerators.TEMPERATURE, temperature, VENDOR, *labels)
    readings.add(TEMPERATURE_MARGIN, _margin(handle, temperature), *labels)
    readings.add(MEMORY_TEMPERATURE, fields.get(_MEMORY_TEMPERATURE), *labels)


def _margin(handle: Handle, temperature: int | None) -> float | None:
    """Hopper and later report the margin and no threshold; older GPUs only the threshold."""
    margin = query(pynvml.nvmlDeviceGetMarginTemperature, handle)
    if margin is not None:
        return float(margin)
    which = pynvml.NVML_TEMPERATURE_THRESHOLD_SLOWDOWN
    threshold = query(pynvml.nvmlDeviceGetTemperatureThreshold, handle, which)
    if threshold is None or temperature is None:
        return None
    return float(threshold - temperature)


def _read_power(handle: Handle, readings: Readings, labels: tuple[str, ...]) -> None:
    power = _scaled(query(pynvml.nvmlDeviceGetPowerUsage, handle), 1e-3)
    readings.add(accelerators.POWER, power, VENDOR, *labels)
    limit = _scaled(query(pynvml.nvmlDeviceGetEnforcedPowerLimit, handle), 1e-3)
    readings.add(POWER_LIMIT, limit, *labels)
    clock = _scaled(query(pynvml.nvmlDeviceGetClockInfo, handle, pynvml.NVML_CLOCK_SM), 1e6)
    readings.add(SM_CLOCK, clock, *labels)


def _scaled(value: float | None, factor: float) -> float | None:
    return None if value is None else value * factor


def _read_modes(handle: Handle, readings: Readings, labels: tuple[str, ...]) -> None:
    """Read the modes; a mode that could not be read is not one that the GPU does not have."""
    modes = [
        call(pynvml.nvmlDeviceGetPersistenceMode, handle),
        call(pynvml.nvmlDeviceGetMigMode, handle),
        call(pynvml.nvmlDeviceGetEccMode, handle),
    ]
    failed = [mode for mode in modes if isinstance(mode, Failure)]
    raise_if_lost(failed)
    if len(failed) == len(modes) or not all(mode.unsupported for mode in failed):
        return
    readings.add(MODE_INFO, 1, *labels, *map(_word, modes))


def _word(mode: Any) -> str:
    if isinstance(mode, Failure):
        return ""
    current = mode[0] if isinstance(mode, list) else mode
    return "on" if current else "off"


def _read_pcie(handle: Handle, readings: Readings, labels: tuple[str, ...]) -> None:
    for family, function in (
        (PCIE_WIDTH, pynvml.nvmlDeviceGetCurrPcieLinkWidth),
        (PCIE_WIDTH_MAX, pynvml.nvmlDeviceGetMaxPcieLinkWidth),
        (PCIE_GENERATION, pynvml.nvmlDeviceGetCurrPcieLinkGeneration),
        (PCIE_GENERATION_MAX, pynvml.nvmlDeviceGetMaxPcieLinkGeneration),
        (PCIE_REPLAYS, pynvml.nvmlDeviceGetPcieReplayCounter),
    ):
        readings.add(family, query(function, handle), *labels)


def _report_recovery(
    fields: dict[Field, float], readings: Readings, labels: tuple[str, ...]
) -> str:
    code = fields.get(_RECOVERY)
    if code is None:
        return ""
    known = RECOVERY_ACTIONS.get(int(code))
    readings.add(accelerators.HEALTHY, int(code) == 0, VENDOR, *labels)
    if known is None:
        return f"recovery_action_{int(code)}"
    readings.add(RECOVERY_ACTION, 1, *labels, *known)
    return known[0]
