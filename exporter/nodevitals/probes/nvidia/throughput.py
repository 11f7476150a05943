"""Bytes over NVLink and PCIe, and energy: counters that NVML keeps since the driver was loaded.

Units, from nvml.h: fields 138 and 139 (NVLink, Volta to Hopper) are in KiB, 202 and 204 (NVLink 5)
and 197 and 198 (PCIe, driver 555 and later) in bytes, energy in mJ. nvmlDeviceGetPcieThroughput is
not used: it measures for 20 ms per call.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pynvml

from nodevitals.probe import Readings
from nodevitals.probes.nvidia.nvml import Field, Handle, query
from nodevitals.probes.nvidia.usage_families import ENERGY, NVLINK_BYTES, PCIE_BYTES

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
_FIELDS = (*_NVLINK_BYTES.values(), *_NVLINK_KIBIBYTES.values(), *_PCIE_BYTES.values())
_ABSENT = (pynvml.NVML_ERROR_NOT_SUPPORTED, pynvml.NVML_ERROR_INVALID_ARGUMENT)
# A counter of 32 bits wraps within a tenth of a second on these links: it is no counter.
_WIDE_MEMBERS = {
    pynvml.NVML_VALUE_TYPE_UNSIGNED_LONG: "ulVal",
    pynvml.NVML_VALUE_TYPE_UNSIGNED_LONG_LONG: "ullVal",
    pynvml.NVML_VALUE_TYPE_SIGNED_LONG_LONG: "sllVal",
}


class ThroughputReader:
    """Reads the counters of one GPU."""

    def __init__(self) -> None:
        self._counts_bytes = False

    def read(self, handle: Handle, readings: Readings, labels: tuple[str, ...]) -> None:
        """Read all counters. Raises LostError."""
        energy = query(pynvml.nvmlDeviceGetTotalEnergyConsumption, handle)
        readings.add(ENERGY, None if energy is None else energy * 1e-3, *labels)
        values: Sequence[Any] = query(pynvml.nvmlDeviceGetFieldValues, handle, _FIELDS) or ()
        by_field = dict(zip(_FIELDS, values))
        for direction, field in _PCIE_BYTES.items():
            readings.add(PCIE_BYTES, _count(by_field.get(field)), *labels, direction)
        for direction, bytes_received in self._nvlink(by_field).items():
            readings.add(NVLINK_BYTES, bytes_received, *labels, direction)

    def _nvlink(self, values: dict[Field, Any]) -> dict[str, int | None]:
        """Bytes by direction, from the one source that this GPU has: the sources differ by the
        protocol's overhead, and a change from one to the other is a false increase.
        """
        in_bytes = [values[field] for field in _NVLINK_BYTES.values() if field in values]
        self._counts_bytes |= any(one.nvmlReturn == pynvml.NVML_SUCCESS for one in in_bytes)
        if self._counts_bytes or not all(one.nvmlReturn in _ABSENT for one in in_bytes):
            return {key: _count(values.get(field)) for key, field in _NVLINK_BYTES.items()}
        counts = {key: _count(values.get(field)) for key, field in _NVLINK_KIBIBYTES.items()}
        return {key: None if count is None else count * 1024 for key, count in counts.items()}


def _count(value: Any) -> int | None:
    if value is None or value.nvmlReturn != pynvml.NVML_SUCCESS:
        return None
    member = _WIDE_MEMBERS.get(value.valueType)
    return None if member is None else int(getattr(value.value, member))
