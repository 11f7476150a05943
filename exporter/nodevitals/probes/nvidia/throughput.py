"""Bytes over NVLink and PCIe, and energy: counters that NVML keeps since the driver was loaded.

Units, from nvml.h: fields 138 and 139 (NVLink, Volta to Hopper) are in KiB, 202 and 204 (NVLink 5)
and 197 and 198 (PCIe, driver 555 and later) in bytes, energy in mJ. nvmlDeviceGetPcieThroughput is
not used: it measures for 20 ms per call.

A driver waits for the GPU's own processor, busy, in most calls. On an H200 with driver 580, energy
takes 3.2 to 4.2 ms, which is as long as half of all other calls, and 197 and 198 take 0.4 to 0.7.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from typing import Any

import pynvml

from nodevitals.probe import Readings
from nodevitals.probes.nvidia.absences import Absences
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
_NVLINK_FIELDS = (*_NVLINK_BYTES.values(), *_NVLINK_KIBIBYTES.values())
ENERGY_SECONDS = 59.0
"""How long the last value of the energy is exposed: one minute at the default interval."""
_ABSENT = (pynvml.NVML_ERROR_NOT_SUPPORTED, pynvml.NVML_ERROR_INVALID_ARGUMENT)
# A counter of 32 bits wraps within a tenth of a second on these links: it is no counter, and is
# taken for one that the GPU does not have. Those of an H200 with driver 580 are such.
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

    def read(
        self, handle: Handle, answers: bool, readings: Readings, labels: tuple[str, ...]
    ) -> None:
        """Read all counters. `answers`: another call on this GPU has returned something in this
        run; a value of an earlier run does not show that it works. Raises LostError.
        """
        readings.add(ENERGY, self._joules(handle, answers), *labels)
        self._absences.start_run()
        pcie = [field for field in _PCIE_BYTES.values() if self._absences.asks(field)]
        fields = (*_NVLINK_FIELDS, *pcie)
        values: Sequence[Any] = query(pynvml.nvmlDeviceGetFieldValues, handle, fields) or ()
        by_field = dict(zip(fields, values))
        for field in pcie:
            if field in by_field:
                self._absences.learn(field, _is_absent(by_field[field]))
        for direction, field in _PCIE_BYTES.items():
            readings.add(PCIE_BYTES, _count(by_field.get(field)), *labels, direction)
        for direction, bytes_received in self._nvlink(by_field).items():
            readings.add(NVLINK_BYTES, bytes_received, *labels, direction)

    def _joules(self, handle: Handle, answers: bool) -> float | None:
        """The energy, read once per minute; again in the next run where that failed."""
        now = time.monotonic()
        if self._energy is None or not answers or now - self._energy_at >= ENERGY_SECONDS:
            millijoules = query(pynvml.nvmlDeviceGetTotalEnergyConsumption, handle)
            self._energy = None if millijoules is None else millijoules * 1e-3
            self._energy_at = now
        return self._energy

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


def _is_absent(value: Any) -> bool:
    """Whether the GPU does not have this counter; one that fails may be read later."""
    if value.nvmlReturn == pynvml.NVML_SUCCESS:
        return value.valueType not in _WIDE_MEMBERS
    return value.nvmlReturn in _ABSENT


def _count(value: Any) -> int | None:
    if value is None or value.nvmlReturn != pynvml.NVML_SUCCESS:
        return None
    member = _WIDE_MEMBERS.get(value.valueType)
    return None if member is None else int(getattr(value.value, member))
