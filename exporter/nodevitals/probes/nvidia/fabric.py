"""The registration of a GPU with the NVLink fabric, and the fabric's health.

The health summary came with driver 580, the health mask with 550; the function without a version
has the state only. docs/nvml-fields.md has more such differences.
"""

from __future__ import annotations

import ctypes
from typing import Any

import pynvml

from nodevitals.probe import Readings
from nodevitals.probes.nvidia.fabric_place import report_fabric_place
from nodevitals.probes.nvidia.families import (
    FABRIC_FAULT,
    FABRIC_FAULTS,
    FABRIC_HEALTHY,
    FABRIC_STATE,
    FABRIC_STATES,
)
from nodevitals.probes.nvidia.nvml import Failure, Handle, call, raise_if_lost

_NOT_SUPPORTED = 0
_COMPLETED = 3
_TRUE, _FALSE = 1, 2
_CORRECT_CONFIGURATION = 1


def read_fabric(handle: Handle, readings: Readings, labels: tuple[str, ...]) -> None:
    """Read the registration with the fabric, and the fabric's health. Raises LostError."""
    info = _read_newest(handle)
    if info is None or info.state == _NOT_SUPPORTED:
        return
    state = FABRIC_STATES[min(info.state, _COMPLETED) - 1]
    if info.state == _COMPLETED and info.status != pynvml.NVML_SUCCESS:
        state = "failed"
    readings.add(FABRIC_STATE, 1, *labels, state)
    report_fabric_place(info, readings, labels)
    faults = _faults(getattr(info, "healthMask", 0))
    for fault, present in faults.items():
        readings.add(FABRIC_FAULT, present, *labels, fault)
    summary = getattr(info, "healthSummary", 0)
    if summary:
        readings.add(
            FABRIC_HEALTHY, summary == pynvml.NVML_GPU_FABRIC_HEALTH_SUMMARY_HEALTHY, *labels
        )
    elif faults:
        readings.add(FABRIC_HEALTHY, not any(faults.values()), *labels)


def _read_newest(handle: Handle) -> Any:
    """The newest structure that the driver fills; None where none can be read."""
    for function, info in (
        (pynvml.nvmlDeviceGetGpuFabricInfoV, pynvml.c_nvmlGpuFabricInfo_v3_t()),
        (pynvml.nvmlDeviceGetGpuFabricInfoV, pynvml.c_nvmlGpuFabricInfo_v2_t()),
        (pynvml.nvmlDeviceGetGpuFabricInfo, pynvml.c_nvmlGpuFabricInfo_t()),
    ):
        result = call(function, handle, ctypes.byref(info))
        if not isinstance(result, Failure):
            return info
        raise_if_lost([result])
        if not result.unsupported:
            return None
    return None


def _faults(mask: int) -> dict[str, bool]:
    """What the mask reports, by fault: present or not."""
    faults = {}
    for number, fault in enumerate(FABRIC_FAULTS[:-1]):
        value = mask >> 2 * number & 3
        if value in (_TRUE, _FALSE):
            faults[fault] = value == _TRUE
    configuration = mask >> 8 & 15  # 0: not supported; others than 1: what is wrong
    if configuration:
        faults[FABRIC_FAULTS[-1]] = configuration != _CORRECT_CONFIGURATION
    return faults
