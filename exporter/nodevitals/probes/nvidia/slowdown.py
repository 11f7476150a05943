"""Why and for how long the clocks of a GPU are reduced."""

from __future__ import annotations

from collections.abc import Callable

import pynvml

from nodevitals.probe import Readings
from nodevitals.probes.nvidia.families import SLOWDOWN_ACTIVE, SLOWDOWN_SECONDS
from nodevitals.probes.nvidia.nvml import Field, Handle, query_newest

_Fields = tuple[tuple[str, Field], ...]

# Values are in nanoseconds.
_POWER_CAP: _Fields = (("sw_power_cap", (pynvml.NVML_FI_DEV_PERF_POLICY_POWER, 0)),)
# The only thermal one of older GPUs.
_OLD_THERMAL: Field = (pynvml.NVML_FI_DEV_PERF_POLICY_THERMAL, 0)
_REASONS = ("sw_thermal", "hw_thermal", "hw_power_brake")
# The id of the first of these reasons, by the first driver that has it there: docs/nvml-fields.md.
# Under another driver, the same ids are settings of power smoothing.
_FIRST_IDS = (((580, 82), 269), ((575, 0), 251))
# Without the power cap (0x4), which is normal for a busy GPU; its seconds are counted.
_BITS = (("hw_thermal", 0x40), ("hw_power_brake", 0x80), ("sw_thermal", 0x20))
# Set together with one of the two hardware reasons above; alone on GPUs that do not have these.
_HW_SLOWDOWN_BIT, _HW_REASONS = 0x8, 0x40 | 0x80


def slowdown_fields(driver_version: str) -> _Fields:
    """The fields with the time of each slowdown under this driver. Those that were renumbered are
    not among them where the version is unknown.
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
        """The fields that `read` does not take from a GPU that has those for which `has` is true:
        the old one costs 1.1 ms on an H200.
        """
        new = any(reason == "sw_thermal" and has(field) for reason, field in self._by_reason)
        return (_OLD_THERMAL,) if new else ()

    def read(
        self,
        handle: Handle,
        fields: dict[Field, float],
        lacks: Callable[[Field], bool],
        readings: Readings,
        labels: tuple[str, ...],
    ) -> None:
        """Read the present reasons and the time of each; `lacks` says which fields the GPU does
        not have. Raises LostError.
        """
        _read_active(handle, readings, labels)
        times = list(self._by_reason)
        if all(reason != "sw_thermal" or lacks(field) for reason, field in times):
            times.append(("thermal", _OLD_THERMAL))
        for reason, field in times:
            if field in fields:
                readings.add(SLOWDOWN_SECONDS, fields[field] * 1e-9, *labels, reason)


def _read_active(handle: Handle, readings: Readings, labels: tuple[str, ...]) -> None:
    reasons = query_newest(
        (pynvml.nvmlDeviceGetCurrentClocksEventReasons, handle),
        (pynvml.nvmlDeviceGetCurrentClocksThrottleReasons, handle),  # its name up to driver 530
    )
    if reasons is None:
        return
    for reason, bit in _BITS:
        readings.add(SLOWDOWN_ACTIVE, bool(reasons & bit), *labels, reason)
    if reasons & _HW_SLOWDOWN_BIT and not reasons & _HW_REASONS:
        readings.add(SLOWDOWN_ACTIVE, 1, *labels, "hw_slowdown")
