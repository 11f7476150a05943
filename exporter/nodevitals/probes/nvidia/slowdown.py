"""Why and for how long the clocks of a GPU are reduced."""

from __future__ import annotations

import pynvml

from nodevitals.probe import Readings
from nodevitals.probes.nvidia.families import SLOWDOWN_ACTIVE, SLOWDOWN_SECONDS
from nodevitals.probes.nvidia.nvml import Field, Handle, query

# Values are in nanoseconds.
_FIELDS: tuple[tuple[str, Field], ...] = (
    ("sw_power_cap", (pynvml.NVML_FI_DEV_PERF_POLICY_POWER, 0)),
    ("sw_thermal", (pynvml.NVML_FI_DEV_CLOCKS_EVENT_REASON_SW_THERM_SLOWDOWN, 0)),
    ("hw_thermal", (pynvml.NVML_FI_DEV_CLOCKS_EVENT_REASON_HW_THERM_SLOWDOWN, 0)),
    ("hw_power_brake", (pynvml.NVML_FI_DEV_CLOCKS_EVENT_REASON_HW_POWER_BRAKE_SLOWDOWN, 0)),
)
# The only thermal one of older GPUs.
_OLD_THERMAL: Field = (pynvml.NVML_FI_DEV_PERF_POLICY_THERMAL, 0)
# Without the power cap (0x4), which is normal for a busy GPU; its seconds are counted.
_BITS = (("hw_thermal", 0x40), ("hw_power_brake", 0x80), ("sw_thermal", 0x20))
# Set together with one of the two hardware reasons above; alone on GPUs that do not have these.
_HW_SLOWDOWN_BIT, _HW_REASONS = 0x8, 0x40 | 0x80

SLOWDOWN_FIELDS = (_OLD_THERMAL, *(field for _, field in _FIELDS))


def read_slowdown(
    handle: Handle, fields: dict[Field, float], readings: Readings, labels: tuple[str, ...]
) -> None:
    """Read the present reasons; `fields` has the values of SLOWDOWN_FIELDS. Raises LostError."""
    reasons = query(pynvml.nvmlDeviceGetCurrentClocksEventReasons, handle)
    if reasons is None:  # its name up to driver 530
        reasons = query(pynvml.nvmlDeviceGetCurrentClocksThrottleReasons, handle)
    if reasons is not None:
        for reason, bit in _BITS:
            readings.add(SLOWDOWN_ACTIVE, bool(reasons & bit), *labels, reason)
        if reasons & _HW_SLOWDOWN_BIT and not reasons & _HW_REASONS:
            readings.add(SLOWDOWN_ACTIVE, 1, *labels, "hw_slowdown")
    known = [(reason, fields[field]) for reason, field in _FIELDS if field in fields]
    if _OLD_THERMAL in fields and "sw_thermal" not in dict(known):
        known.append(("thermal", fields[_OLD_THERMAL]))
    for reason, nanoseconds in known:
        readings.add(SLOWDOWN_SECONDS, nanoseconds * 1e-9, *labels, reason)
