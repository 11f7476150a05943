"""Probe `node`: procfs, sysfs and the clock of the machine itself.

In: procfs and sysfs below the host's paths, adjtimex(2). Out: `nodevitals_node_*`. What a machine
does not have (EDAC, NVMe) is missing.
"""

from __future__ import annotations

import ctypes
import importlib
import math
from collections.abc import Iterator
from pathlib import Path
from typing import ClassVar

import msgspec

from nodevitals.linux.process import processes
from nodevitals.linux.sysfs import parse_integer, read_integer, read_text
from nodevitals.probe import Families, Probe, Readings

metrics = Families("node")
CPU_UTILIZATION = metrics.gauge(
    "cpu_utilization_ratio",
    "Share of all CPU time since the last run that was neither idle nor I/O wait.",
)
CPUS = metrics.gauge("cpus", "Number of online logical CPUs.")
LOAD = metrics.gauge(
    "load_average",
    "Average number of runnable and uninterruptible tasks.",
    minutes=("1", "5", "15"),
)
MEMORY_TOTAL = metrics.gauge("memory_total_bytes", "Memory managed by the kernel.")
MEMORY_AVAILABLE = metrics.gauge(
    "memory_available_bytes", "Memory available to new programs without swapping."
)
BOOT_TIME = metrics.gauge("boot_timestamp_seconds", "Unix time of the last boot.")
PROCESSES = metrics.gauge("processes", "Number of processes.")
BLOCKED = metrics.gauge(
    "blocked_processes", "Number of processes whose main thread is in uninterruptible sleep (D)."
)
CLOCK_SYNCHRONIZED = metrics.gauge(
    "clock_synchronized", "Whether a time daemon synchronizes the kernel's clock (adjtimex)."
)
CLOCK_OFFSET = metrics.gauge(
    "clock_offset_seconds", "Offset that the kernel still has to correct (adjtimex)."
)
CLOCK_MAXIMUM_ERROR = metrics.gauge(
    "clock_maximum_error_seconds", "Maximum error of the kernel's clock (adjtimex)."
)
DESCRIPTORS = metrics.gauge("file_descriptors", "Number of allocated file descriptors.")
DESCRIPTORS_MAXIMUM = metrics.gauge(
    "file_descriptors_maximum", "Maximum number of file descriptors."
)
OOM_KILLS = metrics.counter(
    "oom_kills_total", "Number of processes killed by the OOM killer since boot (vmstat)."
)
MEMORY_ERRORS = metrics.counter(
    "memory_errors_total",
    "Number of memory errors counted by the controller since its driver was loaded (EDAC).",
    "controller",
    kind=("corrected", "uncorrected"),
)
NVME_LIVE = metrics.gauge(
    "nvme_live", "Whether the state of the NVMe controller is live.", "device"
)
NVME_INFO = metrics.gauge(
    "nvme_info",
    "Always 1; model, serial number and firmware of the NVMe controller.",
    "device",
    "model",
    "serial",
    "firmware",
)


class CpuTimes(msgspec.Struct, array_like=True, frozen=True):
    """CPU time since boot in seconds, all CPUs together."""

    busy: float
    total: float


def utilization(before: CpuTimes, after: CpuTimes) -> float | None:
    """The busy share of the time between; None when no time passed or the counts fell back."""
    total, busy = after.total - before.total, after.busy - before.busy
    return min(busy / total, 1.0) if total > 0 and busy >= 0 else None


def parse_vmstat(text: str) -> dict[str, int]:
    """/proc/vmstat's `name value` lines."""
    fields = (line.split() for line in text.splitlines())
    found = ((row[0], parse_integer(row[1])) for row in fields if len(row) == 2)
    return {name: value for name, value in found if value is not None}


def parse_loadavg(text: str) -> tuple[float, float, float] | None:
    """The three averages of /proc/loadavg; None when it is something else."""
    try:
        one, five, fifteen = (float(field) for field in text.split()[:3])
    except ValueError:
        return None
    return (one, five, fifteen) if all(map(math.isfinite, (one, five, fifteen))) else None


class _Timex(ctypes.Structure):
    """struct timex of adjtimex(2)."""

    _fields_: ClassVar = [
        ("modes", ctypes.c_uint),
        ("offset", ctypes.c_long),
        ("freq", ctypes.c_long),
        ("maxerror", ctypes.c_long),
        ("esterror", ctypes.c_long),
        ("status", ctypes.c_int),
        ("constant", ctypes.c_long),
        ("rest", ctypes.c_byte * 160),
    ]


_STA_UNSYNC = 0x0040
_STA_NANO = 0x2000
_TIME_ERROR = 5


class ClockState(msgspec.Struct, frozen=True):
    """The state of the kernel clock, in seconds."""

    synchronized: bool
    offset_seconds: float
    maximum_error_seconds: float


def read_clock_state() -> ClockState | None:
    """Ask adjtimex(2), changing nothing; None where it is forbidden."""
    timex = _Timex()
    state = ctypes.CDLL(None, use_errno=True).adjtimex(ctypes.byref(timex))
    if state < 0:
        return None
    unit = 1e-9 if timex.status & _STA_NANO else 1e-6
    return ClockState(
        synchronized=state != _TIME_ERROR and not timex.status & _STA_UNSYNC,
        offset_seconds=timex.offset * unit,
        maximum_error_seconds=timex.maxerror * 1e-6,  # in microseconds whatever the status
    )


class NodeState(msgspec.Struct):
    """The CPU times of the last run."""

    cpu: CpuTimes | None = None


class NodeProbe(Probe):
    """The machine itself: CPU, memory, load, processes in uninterruptible sleep, clock, file
    descriptors, memory errors, NVMe, OOM kills.
    """

    name = "node"
    default = "on"
    families = metrics
    State = NodeState
    state: NodeState

    @classmethod
    def preload(cls) -> None:
        """Import psutil, which the agent itself does not need."""
        importlib.import_module("psutil")

    def run(self, readings: Readings) -> None:
        """One look at everything."""
        self._processor_and_memory(readings)
        self._processes(readings)
        self._clock(readings)
        self._kernel_counts(readings)
        self._memory_errors(readings)
        self._nvme(readings)

    def _processor_and_memory(self, readings: Readings) -> None:
        import psutil

        psutil.PROCFS_PATH = self.host.procfs
        times = psutil.cpu_times()
        fields = ("user", "nice", "system", "irq", "softirq", "steal")
        busy = sum(getattr(times, field, 0.0) for field in fields)
        now = CpuTimes(busy, busy + times.idle + times.iowait)
        if self.state.cpu is not None:
            readings.add(CPU_UTILIZATION, utilization(self.state.cpu, now))
        self.state.cpu = now
        readings.add(CPUS, psutil.cpu_count())
        memory = psutil.virtual_memory()
        readings.add(MEMORY_TOTAL, memory.total)
        readings.add(MEMORY_AVAILABLE, memory.available)
        readings.add(BOOT_TIME, psutil.boot_time())
        averages = parse_loadavg(read_text(self.host.proc("loadavg")) or "")
        for minutes, average in zip(("1", "5", "15"), averages or (), strict=False):
            readings.add(LOAD, average, minutes)

    def _processes(self, readings: Readings) -> None:
        states = [process.state for process in processes(self.host.procfs)]
        readings.add(PROCESSES, len(states))
        readings.add(BLOCKED, states.count("D"))

    def _clock(self, readings: Readings) -> None:
        clock = read_clock_state()
        if clock is not None:
            readings.add(CLOCK_SYNCHRONIZED, clock.synchronized)
            readings.add(CLOCK_OFFSET, clock.offset_seconds)
            readings.add(CLOCK_MAXIMUM_ERROR, clock.maximum_error_seconds)

    def _kernel_counts(self, readings: Readings) -> None:
        allocated = (read_text(self.host.proc("sys/fs/file-nr")) or "").split()
        if len(allocated) == 3:  # allocated, free (always 0 since 2.6), maximum
            readings.add(DESCRIPTORS, int(allocated[0]))
            readings.add(DESCRIPTORS_MAXIMUM, int(allocated[2]))
        vmstat = parse_vmstat(read_text(self.host.proc("vmstat")) or "")
        readings.add(OOM_KILLS, vmstat.get("oom_kill"))

    def _memory_errors(self, readings: Readings) -> None:
        for controller in _folders(self.host.sys("devices/system/edac/mc"), "mc[0-9]*"):
            for kind, file in (("corrected", "ce_count"), ("uncorrected", "ue_count")):
                readings.add(MEMORY_ERRORS, read_integer(controller / file), controller.name, kind)

    def _nvme(self, readings: Readings) -> None:
        for controller in _folders(self.host.sys("class/nvme"), "nvme[0-9]*"):
            state = read_text(controller / "state")
            serial = read_text(controller / "serial") or ""
            if state is not None:
                readings.add(NVME_LIVE, state == "live", controller.name)
                readings.condition(serial or controller.name, state, controller.name)
            model, firmware = (
                read_text(controller / file) or "" for file in ("model", "firmware_rev")
            )
            readings.add(NVME_INFO, 1, controller.name, model, serial, firmware)


def _folders(parent: Path, pattern: str) -> Iterator[Path]:
    return iter(sorted(parent.glob(pattern)))
