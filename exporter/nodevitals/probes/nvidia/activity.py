"""Activity of a GPU's units through GPM (Hopper and later), with the setting `activity`.

A metric is the average between two samples: one of the last run and one of this. Samples that are
less than 100 ms apart have no meaning. Units, from nvml.h: percent, and MiB/s.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Any

import pynvml

from nodevitals.probe import Readings
from nodevitals.probes.nvidia.nvml import Handle, query
from nodevitals.probes.nvidia.usage_families import ACTIVITY, PCIE_RATE

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

    def read(
        self,
        handle: Handle,
        gpu_instances: Iterable[int],
        readings: Readings,
        labels: tuple[str, ...],
    ) -> None:
        """Sample, and report the averages since the last run. Raises LostError."""
        support = query(pynvml.nvmlGpmQueryDeviceSupport, handle)
        if support is None or not support.isSupportedDevice:
            return
        self._measure("", pynvml.nvmlGpmSampleGet, (handle,), readings, labels)
        names = {str(number): number for number in gpu_instances}
        for name, number in names.items():
            self._measure(name, pynvml.nvmlGpmMigSampleGet, (handle, number), readings, labels)
        self._last = {name: one for name, one in self._last.items() if name in ("", *names)}

    def _measure(
        self,
        gpu_instance: str,
        take: Callable[..., Any],
        of: tuple[Any, ...],
        readings: Readings,
        labels: tuple[str, ...],
    ) -> None:
        sample = _Sample()
        if sample.buffer is None or query(take, *of, sample.buffer) is None:
            return
        before = self._last.get(gpu_instance)
        self._last[gpu_instance] = sample
        if before is None:
            return
        for metric, value in _metrics(before, sample).items():
            if metric in _UNITS:
                series = (*labels, gpu_instance, _UNITS[metric])
                readings.add(ACTIVITY, value / 100, *series)
            elif not gpu_instance:
                readings.add(PCIE_RATE, value * _MEBIBYTE, *labels, _PCIE[metric])


class _Sample:
    """A buffer of the library, freed with this object; `buffer` is None where there is none."""

    def __init__(self) -> None:
        self.buffer: Any = query(pynvml.nvmlGpmSampleAlloc)

    def __del__(self) -> None:
        if self.buffer is not None:
            with suppress(pynvml.NVMLError):
                pynvml.nvmlGpmSampleFree(self.buffer)


def _metrics(before: _Sample, after: _Sample) -> dict[int, float]:
    """The averages that there are between two samples."""
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
        one.metricId: one.value
        for one in results
        if one.nvmlReturn == pynvml.NVML_SUCCESS and math.isfinite(one.value)
    }
