"""A series of the simulated fleet: its labels, and its value at each time."""

from __future__ import annotations

import math
import re
import zlib
from collections.abc import Callable, Iterable

import msgspec

from testbed.site.names import GPU_NODES

ValueAt = Callable[[float], float | None]
Value = float | ValueAt

# Bytes per second, or seconds per second, of counters that grow all the time.
_RATES = {
    "nodevitals_nvidia_nvlink_bytes_total": 80e9,
    "nodevitals_nvidia_pcie_bytes_total": 6e9,
    "nodevitals_nvidia_energy_joules_total": 500.0,
    "nodevitals_nvidia_slowdown_seconds_total": 0.02,
    "nodevitals_rdma_port_received_bytes_total": 9e9,
    "nodevitals_rdma_port_transmitted_bytes_total": 9e9,
    "nodevitals_rdma_port_congestion_total": 40.0,
    "nodevitals_network_received_bytes_total": 3e8,
    "nodevitals_network_transmitted_bytes_total": 3e8,
    "nodevitals_ascend_tool_seconds_total": 0.05,
    "nodevitals_fabric_test_bytes_total": 2e8,
    "nodevitals_fabric_test_seconds_total": 0.004,
    "process_cpu_seconds_total": 0.01,
}
_MOVING = re.compile(
    r"temperature_celsius|power_watts|clock_hertz|load_average|memory_(available|used)_bytes"
    r"|_(read|write|step|duration)_seconds$|clock_offset|receive_watts|resident_memory"
)
_LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')
_PERIOD_SECONDS = 600


class Series(msgspec.Struct):
    """A series and its value: a number, or a function of a Unix time that may be without one."""

    name: str
    labels: dict[str, str]
    value: Value

    @property
    def head(self) -> str:
        """What stands before the value on a page."""
        pairs = ",".join(f'{name}="{_escaped(text)}"' for name, text in self.labels.items() if text)
        return f"{self.name}{{{pairs}}}"

    def at(self, moment: float) -> float | None:
        """Return the value at a Unix time."""
        return self.value(moment) if callable(self.value) else self.value


def page_of(series: Iterable[Series], moment: float) -> str:
    """Return the exposition page of a Unix time."""
    samples = ((one.head, one.at(moment)) for one in series)
    return "".join(f"{head} {value:.12g}\n" for head, value in samples if value is not None)


def _escaped(text: str) -> str:
    return text.replace("\\", r"\\").replace('"', r"\"")


def labels_of(text: str) -> dict[str, str]:
    """Return labels as a page has them."""
    return dict(_LABEL.findall(text))


def grows(rate: float, start: float = 0.0) -> ValueAt:
    """Return a counter that grows by a rate per second from a Unix time on."""
    return lambda moment: max(0.0, moment - start) * rate


def waves(middle: float, share: float, phase: float) -> ValueAt:
    """Return a gauge that goes up and down around a value."""
    return lambda moment: (
        middle * (1 + share * math.sin(2 * math.pi * (moment / _PERIOD_SECONDS + phase)))
    )


def from_page(name: str, labels: dict[str, str], value: float, start: float, use: float) -> Series:
    """Return a series of a page as it moves on a node that started at a Unix time.

    `use` is how much its devices work, from 0 to 1.
    """
    return Series(name, labels, _moving(name, labels, value, start, use))


def _moving(name: str, labels: dict[str, str], value: float, start: float, use: float) -> Value:
    phase = zlib.crc32(f"{name}{labels}".encode()) / 2**32
    if name in ("nodevitals_node_time_seconds", "nodevitals_probe_last_success_timestamp_seconds"):
        return lambda moment: moment
    if name == "nodevitals_fabric_last_success_timestamp_seconds":
        return lambda moment: moment - (moment + phase * 600) % 600
    if name == "nodevitals_fabric_slot_seconds":
        return 600.0
    if name == "nodevitals_fabric_members":
        return float(GPU_NODES)
    if name.endswith(
        ("_start_time_seconds", "_boot_timestamp_seconds", "_enabled_timestamp_seconds")
    ):
        return start
    if name == "nodevitals_probe_runs_total" and labels.get("outcome") == "ok":
        return grows(1 / 15, start)
    if name == "nodevitals_fabric_runs_total" and labels.get("outcome") == "ok":
        return lambda moment: float((moment - start) // 600)
    if name == "nodevitals_accelerator_utilization_ratio":
        return waves(0.85 * use, 0.1, phase)
    if name == "nodevitals_accelerator_processes":
        return float(use > 0)
    if name in _RATES:
        return grows(_RATES[name] * (0.7 + 0.6 * phase) * (0.05 + use), start)
    if name == "nodevitals_accelerator_power_watts":
        return waves(120 + 480 * use, 0.06, phase)
    if name == "nodevitals_accelerator_temperature_celsius":
        return waves(36 + 28 * use + 4 * phase, 0.04, phase)
    if name == "nodevitals_accelerator_memory_used_bytes":
        return waves(2e9 + 60e9 * use, 0.01, phase)
    return waves(value, 0.05, phase) if _MOVING.search(name) and value else value
