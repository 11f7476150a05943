"""How one GPU is used: throughput, MIG instances, and with settings of their own details, activity.

Throughput is bytes over NVLink and PCIe, and energy: counters that NVML keeps since the driver was
loaded. Units, from nvml.h: fields 138 and 139 (NVLink, Volta to Hopper) are in KiB, 202 and 204
(NVLink 5) and 197 and 198 (PCIe, driver 555 and later) in bytes, energy in mJ.
nvmlDeviceGetPcieThroughput is not used: it measures for 20 ms per call.

In most calls, the driver waits actively for the GPU's own processor. On an H200 with driver 580,
energy takes 3.2 to 4.2 ms, half as long as all other calls; 197 and 198 take 0.4 to 0.7 ms.

MIG, from nvml.h: indices of MIG devices have gaps; the name ends in the profile; errors by instance
exist only for uncorrected volatile ones outside the DRAM. Memory and errors belong to the GPU
instance, which may hold several compute instances.

`details`: clocks in MHz, utilizations in percent, power in mW.

`activity`: that of a GPU's units through GPM (Hopper and later). A metric is the average between
two samples: one of the last run and one of this. Samples that are less than 100 ms apart have no
meaning. Units, from nvml.h: percent, and MiB/s.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

import pynvml

from nodevitals.probes.nvidia.families import (
    ACTIVITY,
    C2C_ERRORS,
    ENERGY,
    ENGINE_UTILIZATION,
    FEC_BINS,
    FEC_ERRORS,
    MEMORY_CLOCK,
    MEMORY_UTILIZATION,
    MIG_ECC_ERRORS,
    MIG_INFO,
    MIG_MEMORY_TOTAL,
    MIG_MEMORY_USED,
    MIG_PROCESSES,
    NVLINK_BYTES,
    PCIE_BYTES,
    PCIE_RATE,
    PERFORMANCE_STATE,
    POWER_LIMIT_DEFAULT,
)
from nodevitals.probes.nvidia.nvml import Absences, Field, FieldReader, GpuReadings, query

# nvml.h documents this scope for 138 and 139; NVIDIA's DCGM uses it for the fields of NVLink 5 too.
ALL_LINKS = 0xFFFF_FFFF
_NVLINK_BYTES: dict[str, Field] = {
    "received": (pynvml.NVML_FI_DEV_NVLINK_COUNT_RCV_BYTES, ALL_LINKS),
    "transmitted": (pynvml.NVML_FI_DEV_NVLINK_COUNT_XMIT_BYTES, ALL_LINKS),
}
_NVLINK_KIBIBYTES: dict[str, Field] = {
    "received": (pynvml.NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_RX, ALL_LINKS),
    "transmitted": (pynvml.NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_TX, ALL_LINKS),
}
_PCIE_BYTES: dict[str, Field] = {
    "received": (pynvml.NVML_FI_DEV_PCIE_COUNT_RX_BYTES, 0),
    "transmitted": (pynvml.NVML_FI_DEV_PCIE_COUNT_TX_BYTES, 0),
}
_NVLINK_FIELDS = (*_NVLINK_BYTES.values(), *_NVLINK_KIBIBYTES.values())
ENERGY_SECONDS = 59.0
"""How long the last value of the energy is exposed: one minute at the default interval."""
_ABSENT = (pynvml.NVML_ERROR_NOT_SUPPORTED, pynvml.NVML_ERROR_INVALID_ARGUMENT)
# A counter of 32 bits wraps within a tenth of a second on these links, so it is useless and treated
# as missing. The counters of an H200 with driver 580 are like this.
_WIDE_MEMBERS = {
    pynvml.NVML_VALUE_TYPE_UNSIGNED_LONG: "ulVal",
    pynvml.NVML_VALUE_TYPE_UNSIGNED_LONG_LONG: "ullVal",
    pynvml.NVML_VALUE_TYPE_SIGNED_LONG_LONG: "sllVal",
}


class ThroughputReader:
    """Reads the counters of one GPU."""

    def __init__(self) -> None:
        self._counts_bytes = False
        self._absences = Absences()
        self._energy: float | None = None
        self._energy_at = -math.inf

    def read(self, gpu: GpuReadings, answers: bool) -> None:
        """Read all counters. `answers`: another call on this GPU has returned a value in this run;
        a value of an earlier run does not show that the GPU works. Raises LostError.
        """
        gpu.add(ENERGY, self._joules(gpu, answers))
        self._absences.start_run()
        pcie = [field for field in _PCIE_BYTES.values() if self._absences.asks(field)]
        fields = (*_NVLINK_FIELDS, *pcie)
        values: Sequence[Any] = gpu.query(pynvml.nvmlDeviceGetFieldValues, fields) or ()
        by_field = dict(zip(fields, values))
        for field in pcie:
            if field in by_field:
                self._absences.learn(field, _is_absent(by_field[field]))
        for direction, field in _PCIE_BYTES.items():
            gpu.add(PCIE_BYTES, _count(by_field.get(field)), direction)
        for direction, bytes_received in self._nvlink(by_field).items():
            gpu.add(NVLINK_BYTES, bytes_received, direction)

    def _joules(self, gpu: GpuReadings, answers: bool) -> float | None:
        """The energy, read once per minute, or again in the next run after a failure."""
        now = time.monotonic()
        if self._energy is None or not answers or now - self._energy_at >= ENERGY_SECONDS:
            millijoules = gpu.query(pynvml.nvmlDeviceGetTotalEnergyConsumption)
            self._energy = None if millijoules is None else millijoules * 1e-3
            self._energy_at = now
        return self._energy

    def _nvlink(self, values: dict[Field, Any]) -> dict[str, int | None]:
        """Bytes by direction, always from the same source: the sources differ by the protocol's
        overhead, so a change of the source would be a false increase.
        """
        in_bytes = [values[field] for field in _NVLINK_BYTES.values() if field in values]
        self._counts_bytes |= any(value.nvmlReturn == pynvml.NVML_SUCCESS for value in in_bytes)
        if self._counts_bytes or not all(value.nvmlReturn in _ABSENT for value in in_bytes):
            return {key: _count(values.get(field)) for key, field in _NVLINK_BYTES.items()}
        counts = {key: _count(values.get(field)) for key, field in _NVLINK_KIBIBYTES.items()}
        return {key: None if count is None else count * 1024 for key, count in counts.items()}


def _is_absent(value: Any) -> bool:
    """Whether the GPU does not have this counter; a counter that fails may be read later."""
    if value.nvmlReturn == pynvml.NVML_SUCCESS:
        return value.valueType not in _WIDE_MEMBERS
    return value.nvmlReturn in _ABSENT


def _count(value: Any) -> int | None:
    if value is None or value.nvmlReturn != pynvml.NVML_SUCCESS:
        return None
    member = _WIDE_MEMBERS.get(value.valueType)
    return None if member is None else int(getattr(value.value, member))


_UNCORRECTED = pynvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED
_VOLATILE = pynvml.NVML_VOLATILE_ECC
_SRAM = pynvml.NVML_MEMORY_LOCATION_SRAM


def read_mig(gpu: GpuReadings) -> list[int]:
    """Read all instances. Returns the ids of GPU instances; none if MIG is off. Raises
    LostError.
    """
    mode = gpu.query(pynvml.nvmlDeviceGetMigMode)
    if mode is None or not mode[0]:
        return []
    instances: dict[int, GpuReadings] = {}
    for index in range(gpu.query(pynvml.nvmlDeviceGetMaxMigDeviceCount) or 0):
        handle = gpu.query(pynvml.nvmlDeviceGetMigDeviceHandleByIndex, index)
        number = None if handle is None else query(pynvml.nvmlDeviceGetGpuInstanceId, handle)
        if number is None:
            continue
        mig = GpuReadings(handle, gpu.readings, *gpu.labels, str(number))
        _read_compute_instance(mig)
        if number not in instances:
            instances[number] = mig
            _read_gpu_instance(mig)
    return list(instances)


def _read_compute_instance(mig: GpuReadings) -> None:
    compute_instance = mig.query(pynvml.nvmlDeviceGetComputeInstanceId)
    if compute_instance is None:
        return
    name: str = mig.query(pynvml.nvmlDeviceGetName) or ""
    uuid: str = mig.query(pynvml.nvmlDeviceGetUUID) or ""
    profile = name.partition(" MIG ")[2]
    mig.add(MIG_INFO, 1, str(compute_instance), uuid, profile)
    processes = mig.query(pynvml.nvmlDeviceGetComputeRunningProcesses)
    count = None if processes is None else len(processes)
    mig.add(MIG_PROCESSES, count, str(compute_instance))


def _read_gpu_instance(mig: GpuReadings) -> None:
    function = pynvml.nvmlDeviceGetMemoryInfo
    memory = mig.query_newest((function, pynvml.nvmlMemory_v2), (function,))
    if memory is not None:
        mig.add(MIG_MEMORY_USED, memory.used)
        mig.add(MIG_MEMORY_TOTAL, memory.total)
    which = (_UNCORRECTED, _VOLATILE, _SRAM)
    errors = mig.query(pynvml.nvmlDeviceGetMemoryErrorCounter, *which)
    mig.add(MIG_ECC_ERRORS, errors)


_FIRST_FEC = pynvml.NVML_FI_DEV_NVLINK_COUNT_FEC_HISTORY_0
_FEC: dict[str, Field] = {name: (_FIRST_FEC + int(name), ALL_LINKS) for name in FEC_BINS}
_C2C_LINKS: Field = (pynvml.NVML_FI_DEV_C2C_LINK_COUNT, 0)
_C2C = {
    pynvml.NVML_FI_DEV_C2C_LINK_ERROR_INTR: "crc",
    pynvml.NVML_FI_DEV_C2C_LINK_ERROR_REPLAY: "replay",
    pynvml.NVML_FI_DEV_C2C_LINK_ERROR_REPLAY_B2B: "replay_back_to_back",
}
_MAX_C2C_LINKS = 32


class DetailReader:
    """Reads the details of one GPU."""

    def __init__(self) -> None:
        self._fields = FieldReader([*_FEC.values(), _C2C_LINKS])
        self._c2c: FieldReader | None = None
        self._c2c_fields: tuple[Field, ...] = ()

    def read(self, gpu: GpuReadings) -> None:
        """Read everything the GPU has. Raises LostError."""
        _read_clock_and_power(gpu)
        rates = gpu.query(pynvml.nvmlDeviceGetUtilizationRates)
        gpu.add(MEMORY_UTILIZATION, rates and rates.memory / 100)
        for engine, function in (
            ("encoder", pynvml.nvmlDeviceGetEncoderUtilization),
            ("decoder", pynvml.nvmlDeviceGetDecoderUtilization),
        ):
            percent = (gpu.query(function) or (None,))[0]
            share = None if percent is None else percent / 100
            gpu.add(ENGINE_UTILIZATION, share, engine)
        fields = self._fields.read(gpu)
        for name, field in _FEC.items():
            gpu.add(FEC_ERRORS, fields.get(field), name)
        self._read_c2c(gpu, int(fields.get(_C2C_LINKS, 0)))

    def _read_c2c(self, gpu: GpuReadings, links: int) -> None:
        """Read by link, never as a sum: nvml.h does not specify whether a value is for one link."""
        wanted = tuple((code, link) for link in range(min(links, _MAX_C2C_LINKS)) for code in _C2C)
        if self._c2c is None or wanted != self._c2c_fields:
            self._c2c, self._c2c_fields = FieldReader(wanted), wanted
        counts = self._c2c.read(gpu) if wanted else {}
        for (code, link), count in counts.items():
            gpu.add(C2C_ERRORS, count, str(link), _C2C[code])


def _read_clock_and_power(gpu: GpuReadings) -> None:
    megahertz = gpu.query(pynvml.nvmlDeviceGetClockInfo, pynvml.NVML_CLOCK_MEM)
    gpu.add(MEMORY_CLOCK, None if megahertz is None else megahertz * 1e6)
    state = gpu.query(pynvml.nvmlDeviceGetPerformanceState)
    known = state is not None and state != pynvml.NVML_PSTATE_UNKNOWN
    gpu.add(PERFORMANCE_STATE, state if known else None)
    milliwatts = gpu.query(pynvml.nvmlDeviceGetPowerManagementDefaultLimit)
    watts = None if milliwatts is None else milliwatts * 1e-3
    gpu.add(POWER_LIMIT_DEFAULT, watts)


_UNITS = {
    pynvml.NVML_GPM_METRIC_GRAPHICS_UTIL: "graphics",
    pynvml.NVML_GPM_METRIC_SM_UTIL: "sm",
    pynvml.NVML_GPM_METRIC_SM_OCCUPANCY: "sm_occupancy",
    pynvml.NVML_GPM_METRIC_ANY_TENSOR_UTIL: "tensor",
    pynvml.NVML_GPM_METRIC_INTEGER_UTIL: "integer",
    pynvml.NVML_GPM_METRIC_FP64_UTIL: "fp64",
    pynvml.NVML_GPM_METRIC_FP32_UTIL: "fp32",
    pynvml.NVML_GPM_METRIC_FP16_UTIL: "fp16",
    pynvml.NVML_GPM_METRIC_DRAM_BW_UTIL: "dram",
}
_PCIE = {
    pynvml.NVML_GPM_METRIC_PCIE_RX_PER_SEC: "received",
    pynvml.NVML_GPM_METRIC_PCIE_TX_PER_SEC: "transmitted",
}
_METRICS = (*_UNITS, *_PCIE)
_MEBIBYTE = 1 << 20


class ActivityReader:
    """Keeps the last sample of one GPU and of each of its GPU instances."""

    def __init__(self) -> None:
        self._last: dict[str, _Sample] = {}

    def read(self, gpu: GpuReadings, gpu_instances: Iterable[int]) -> None:
        """Sample, and report the averages since the last run. Raises LostError."""
        support = gpu.query(pynvml.nvmlGpmQueryDeviceSupport)
        if support is None or not support.isSupportedDevice:
            return
        self._measure(gpu, "", pynvml.nvmlGpmSampleGet)
        names = {str(number): number for number in gpu_instances}
        for name, number in names.items():
            self._measure(gpu, name, pynvml.nvmlGpmMigSampleGet, number)
        self._last = {name: usage for name, usage in self._last.items() if name in ("", *names)}

    def _measure(
        self, gpu: GpuReadings, gpu_instance: str, take: Callable[..., Any], *numbers: int
    ) -> None:
        sample = _Sample()
        if sample.buffer is None or gpu.query(take, *numbers, sample.buffer) is None:
            return
        before = self._last.get(gpu_instance)
        self._last[gpu_instance] = sample
        if before is None:
            return
        for metric, value in _metrics(before, sample).items():
            if metric in _UNITS:
                gpu.add(ACTIVITY, value / 100, gpu_instance, _UNITS[metric])
            elif not gpu_instance:
                gpu.add(PCIE_RATE, value * _MEBIBYTE, _PCIE[metric])


class _Sample:
    """A buffer of the library, freed with this object; `buffer` is None if there is none."""

    def __init__(self) -> None:
        self.buffer: Any = query(pynvml.nvmlGpmSampleAlloc)

    def __del__(self) -> None:
        if self.buffer is not None:
            with suppress(pynvml.NVMLError):
                pynvml.nvmlGpmSampleFree(self.buffer)


def _metrics(before: _Sample, after: _Sample) -> dict[int, float]:
    """The available averages between two samples."""
    request = pynvml.c_nvmlGpmMetricsGet_t()
    request.version = pynvml.NVML_GPM_METRICS_GET_VERSION
    request.numMetrics = len(_METRICS)
    request.sample1, request.sample2 = before.buffer, after.buffer
    for position, metric in enumerate(_METRICS):
        request.metrics[position].metricId = metric
    if query(pynvml.nvmlGpmMetricsGet, request) is None:
        return {}
    results = [request.metrics[position] for position in range(len(_METRICS))]
    return {
        result.metricId: result.value
        for result in results
        if result.nvmlReturn == pynvml.NVML_SUCCESS and math.isfinite(result.value)
    }


class UsageOptions(NamedTuple):
    """What to read besides throughput and MIG instances."""

    details: bool = False
    activity: bool = False


class UsageReader:
    """Reads one GPU."""

    def __init__(self, options: UsageOptions) -> None:
        self._throughput = ThroughputReader()
        self._details = DetailReader() if options.details else None
        self._activity = ActivityReader() if options.activity else None

    def read(self, gpu: GpuReadings, answers: bool) -> None:
        """Read everything that is turned on. `answers`: the GPU has returned a value in this run.
        Raises LostError.
        """
        self._throughput.read(gpu, answers)
        gpu_instances = read_mig(gpu)
        if self._details is not None:
            self._details.read(gpu)
        if self._activity is not None:
            self._activity.read(gpu, gpu_instances)
