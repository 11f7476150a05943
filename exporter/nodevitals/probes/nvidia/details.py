"""What is read of a GPU only with the setting `details`: clocks, engines, limits, link history.

Units, from nvml.h: clocks in MHz, utilizations in percent, power in mW.
"""

from __future__ import annotations

import pynvml

from nodevitals.probe import Readings
from nodevitals.probes.nvidia.nvml import Field, FieldReader, Handle, query
from nodevitals.probes.nvidia.throughput import ALL_LINKS
from nodevitals.probes.nvidia.usage_families import (
    C2C_ERRORS,
    ENGINE_UTILIZATION,
    FEC_BINS,
    FEC_ERRORS,
    MEMORY_CLOCK,
    MEMORY_UTILIZATION,
    PERFORMANCE_STATE,
    POWER_LIMIT_DEFAULT,
)

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

    def read(self, handle: Handle, readings: Readings, labels: tuple[str, ...]) -> None:
        """Read everything the GPU has. Raises LostError."""
        _read_clock_and_power(handle, readings, labels)
        rates = query(pynvml.nvmlDeviceGetUtilizationRates, handle)
        readings.add(MEMORY_UTILIZATION, rates and rates.memory / 100, *labels)
        for engine, function in (
            ("encoder", pynvml.nvmlDeviceGetEncoderUtilization),
            ("decoder", pynvml.nvmlDeviceGetDecoderUtilization),
        ):
            percent = (query(function, handle) or (None,))[0]
            share = None if percent is None else percent / 100
            readings.add(ENGINE_UTILIZATION, share, *labels, engine)
        fields = self._fields.read(handle)
        for name, field in _FEC.items():
            readings.add(FEC_ERRORS, fields.get(field), *labels, name)
        self._read_c2c(handle, int(fields.get(_C2C_LINKS, 0)), readings, labels)

    def _read_c2c(
        self, handle: Handle, links: int, readings: Readings, labels: tuple[str, ...]
    ) -> None:
        """By link, never as a sum: nvml.h does not say whether a value is that of one link."""
        wanted = tuple((code, link) for link in range(min(links, _MAX_C2C_LINKS)) for code in _C2C)
        if self._c2c is None or wanted != self._c2c_fields:
            self._c2c, self._c2c_fields = FieldReader(wanted), wanted
        counts = self._c2c.read(handle) if wanted else {}
        for (code, link), count in counts.items():
            readings.add(C2C_ERRORS, count, *labels, str(link), _C2C[code])


def _read_clock_and_power(handle: Handle, readings: Readings, labels: tuple[str, ...]) -> None:
    megahertz = query(pynvml.nvmlDeviceGetClockInfo, handle, pynvml.NVML_CLOCK_MEM)
    readings.add(MEMORY_CLOCK, None if megahertz is None else megahertz * 1e6, *labels)
    state = query(pynvml.nvmlDeviceGetPerformanceState, handle)
    known = state is not None and state != pynvml.NVML_PSTATE_UNKNOWN
    readings.add(PERFORMANCE_STATE, state if known else None, *labels)
    milliwatts = query(pynvml.nvmlDeviceGetPowerManagementDefaultLimit, handle)
    watts = None if milliwatts is None else milliwatts * 1e-3
    readings.add(POWER_LIMIT_DEFAULT, watts, *labels)
