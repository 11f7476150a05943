"""Where a GPU stands in the NVLink fabric, and what is incorrect in its configuration.

Out of the structure that nvmlDeviceGetGpuFabricInfo or …V fills. Bits 8 to 11 of its health mask
are NVML_GPU_FABRIC_HEALTH_MASK_INCORRECT_CONFIGURATION of nvml.h: 0 not supported, 1 correct, from
2 on the values of FABRIC_CONFIGURATIONS in this order.
"""

from __future__ import annotations

import uuid
from typing import Any

from nodevitals.probe import Readings
from nodevitals.probes.nvidia.usage_families import (
    FABRIC_CONFIGURATIONS,
    FABRIC_INFO,
    FABRIC_MISCONFIGURATION,
)

_FIRST_INCORRECT = 2


def report_fabric_place(info: Any, readings: Readings, labels: tuple[str, ...]) -> None:
    """Report cluster, clique and misconfiguration of a structure that NVML filled."""
    cluster = uuid.UUID(bytes=bytes(info.clusterUuid))
    if cluster.int:
        readings.add(FABRIC_INFO, 1, *labels, str(cluster), str(info.cliqueId))
    value = getattr(info, "healthMask", 0) >> 8 & 15
    if value >= _FIRST_INCORRECT:
        position = min(value - _FIRST_INCORRECT, len(FABRIC_CONFIGURATIONS) - 1)
        readings.add(FABRIC_MISCONFIGURATION, 1, *labels, FABRIC_CONFIGURATIONS[position])
