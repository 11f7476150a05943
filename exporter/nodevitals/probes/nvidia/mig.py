"""The MIG instances of a GPU: identity, memory, processes, memory errors.

nvml.h: indices of MIG devices have gaps; the name ends in the profile; errors by instance exist
only for uncorrected volatile ones outside the DRAM. Memory and errors belong to the GPU instance,
which may hold several compute instances.
"""

from __future__ import annotations

import pynvml

from nodevitals.probe import Readings
from nodevitals.probes.nvidia.nvml import Handle, query, query_newest
from nodevitals.probes.nvidia.usage_families import (
    MIG_ECC_ERRORS,
    MIG_INFO,
    MIG_MEMORY_TOTAL,
    MIG_MEMORY_USED,
    MIG_PROCESSES,
)

_UNCORRECTED = pynvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED
_VOLATILE = pynvml.NVML_VOLATILE_ECC
_SRAM = pynvml.NVML_MEMORY_LOCATION_SRAM


def read_mig(handle: Handle, readings: Readings, labels: tuple[str, ...]) -> list[int]:
    """Read all instances; the ids of the GPU instances, none where MIG is off. Raises LostError."""
    mode = query(pynvml.nvmlDeviceGetMigMode, handle)
    if mode is None or not mode[0]:
        return []
    found: list[int] = []
    for index in range(query(pynvml.nvmlDeviceGetMaxMigDeviceCount, handle) or 0):
        mig = query(pynvml.nvmlDeviceGetMigDeviceHandleByIndex, handle, index)
        gpu_instance = None if mig is None else query(pynvml.nvmlDeviceGetGpuInstanceId, mig)
        if gpu_instance is None:
            continue
        of_gpu_instance = (*labels, str(gpu_instance))
        _read_compute_instance(mig, readings, of_gpu_instance)
        if gpu_instance not in found:
            found.append(gpu_instance)
            _read_gpu_instance(mig, readings, of_gpu_instance)
    return found


def _read_compute_instance(mig: Handle, readings: Readings, labels: tuple[str, ...]) -> None:
    compute_instance = query(pynvml.nvmlDeviceGetComputeInstanceId, mig)
    if compute_instance is None:
        return
    name: str = query(pynvml.nvmlDeviceGetName, mig) or ""
    uuid: str = query(pynvml.nvmlDeviceGetUUID, mig) or ""
    profile = name.partition(" MIG ")[2]
    readings.add(MIG_INFO, 1, *labels, str(compute_instance), uuid, profile)
    processes = query(pynvml.nvmlDeviceGetComputeRunningProcesses, mig)
    count = None if processes is None else len(processes)
    readings.add(MIG_PROCESSES, count, *labels, str(compute_instance))


def _read_gpu_instance(mig: Handle, readings: Readings, labels: tuple[str, ...]) -> None:
    function = pynvml.nvmlDeviceGetMemoryInfo
    memory = query_newest((function, mig, pynvml.nvmlMemory_v2), (function, mig))
    if memory is not None:
        readings.add(MIG_MEMORY_USED, memory.used, *labels)
        readings.add(MIG_MEMORY_TOTAL, memory.total, *labels)
    which = (_UNCORRECTED, _VOLATILE, _SRAM)
    errors = query(pynvml.nvmlDeviceGetMemoryErrorCounter, mig, *which)
    readings.add(MIG_ECC_ERRORS, errors, *labels)
