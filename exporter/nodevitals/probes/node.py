"""Probe `node`: procfs, sysfs and the clock of the machine itself.

In: procfs and sysfs below the host's paths, adjtimex(2). Out: `nodevitals_node_*`. What a machine
does not have (EDAC, NVMe) is missing.
"""

from __future__ import annotations

import ctypes
import math
import time
from collections.abc import Iterator
from pathlib import Path
from typing import ClassVar, Optional

import msgspec

from nodevitals.linux.host import Host
from nodevitals.linux.process import process_states
from nodevitals.linux.sysfs import list_names, parse_integer, read_integer, read_label, read_text
from nodevitals.probe import Families, Probe, ProbeError, Readings

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
TIME = metrics.gauge(
    "time_seconds", "Unix time of the node's clock at the last run; boot time and events are on it."
)
PROCESSES = metrics.gauge("processes", "Number of processes, read every two minutes.")
BLOCKED = metrics.gauge(
    "blocked_processes",
    "Number of processes whose main thread is in uninterruptible sleep (D), read every two "
    "minutes.",
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


# Reading one file for each of thousands of processes is most of the cost of a run. Hung processes
# hang for longer than this.
PROCESSES_SECONDS = 110.0

# nvme_sysfs_show_state() in drivers/nvme/host.
NVME_STATES = ("new", "live", "resetting", "connecting", "deleting", "deleting (no IO)", "dead")


class CpuTimes(msgspec.Struct, array_like=True, frozen=True):
    """CPU time since boot in clock ticks, all CPUs together."""

    busy: float
    total: float


class Stat(msgspec.Struct, frozen=True):
    """The values of /proc/stat: CPU times, number of online CPUs, Unix time of the boot."""

    times: Optional[CpuTimes]
    cpus: Optional[int]
    boot: Optional[int]


def parse_stat(text: str) -> Stat:
    """The values of /proc/stat (proc_stat(5)); None for values that it lacks."""
    rows = [line.split() for line in text.splitlines() if line]
    cpus = sum(row[0].startswith("cpu") and row[0] != "cpu" for row in rows)
    by_name = {row[0]: [parse_integer(word) for word in row[1:]] for row in rows if row}
    ticks = [count for count in by_name.get("cpu", ())[:8] if count is not None]
    times = None
    if len(ticks) == 8:
        waiting = ticks[3] + ticks[4]  # idle, and idle with I/O outstanding
        times = CpuTimes(sum(ticks) - waiting, sum(ticks))
    return Stat(times, cpus or None, next(iter(by_name.get("btime", ())), None))


def parse_meminfo(text: str) -> dict[str, int]:
    """Bytes by name, for the lines of /proc/meminfo in kB."""
    sizes = {}
    for line in text.splitlines():
        name, _, rest = line.partition(":")
        kibibytes = parse_integer(rest.strip().removesuffix(" kB"))
        if kibibytes is not None:
            sizes[name] = kibibytes * 1024
    return sizes


def utilization(before: CpuTimes, after: CpuTimes) -> float | None:
    """The busy share of the time between; None if no time passed or the counts decreased."""
    total, busy = after.total - before.total, after.busy - before.busy
    return min(busy / total, 1.0) if total > 0 and busy >= 0 else None


def parse_vmstat(text: str) -> dict[str, int]:
    """Values by name in /proc/vmstat."""
    rows = (line.split() for line in text.splitlines())
    values = {row[0]: parse_integer(row[1]) for row in rows if len(row) == 2}
    return {name: value for name, value in values.items() if value is not None}


def parse_loadavg(text: str) -> tuple[float, float, float] | None:
    """The three averages of /proc/loadavg; None for other text."""
    try:
        load_1, load_5, load_15 = (float(field) for field in text.split()[:3])
    except ValueError:
        return None
    return (load_1, load_5, load_15) if math.isfinite(load_1 + load_5 + load_15) else None


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
    """The state by adjtimex(2), which changes nothing here; None if the call is forbidden."""
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


class Processes(msgspec.Struct, frozen=True):
    """The result of a look at all processes. `blocked` is None if one could not be read, because it
    may be in any state. `at`: monotonic seconds of the look.
    """

    number: int
    blocked: Optional[int]
    at: float


class NodeState(msgspec.Struct):
    """The CPU times of the last run, the last look at the processes, and the last model, serial
    number and firmware of each NVMe controller.
    """

    cpu: Optional[CpuTimes] = None
    processes: Optional[Processes] = None
    nvme: dict[str, list[str]] = {}


def look_at_processes(host: Host, now: float) -> Processes | None:
    """The processes now; None if they cannot be listed."""
    try:
        states = list(process_states(host.procfs).values())
    except OSError:
        return None
    if not states:
        return None
    return Processes(len(states), None if "" in states else states.count("D"), now)


class NodeProbe(Probe):
    """The machine: CPU, memory, load, blocked processes, clock, memory errors, NVMe, OOM kills.
    Blocked processes are those in uninterruptible sleep.
    """

    name = "node"
    default = "on"
    families = metrics
    shared = True
    State = NodeState
    state: NodeState

    def run(self, readings: Readings) -> None:
        """Read everything once."""
        self._processor_and_memory(readings)
        self._kernel_counts(readings)
        self._processes(readings)
        if not readings.samples:
            text = f"nothing in {self.host.procfs} can be read: is --path.procfs right?"
            raise ProbeError("procfs", text)
        self._clock(readings)
        self._memory_errors(readings)
        self._nvme(readings)

    def _processor_and_memory(self, readings: Readings) -> None:
        stat = parse_stat(read_text(self.host.proc("stat")) or "")
        if self.state.cpu is not None and stat.times is not None:
            readings.add(CPU_UTILIZATION, utilization(self.state.cpu, stat.times))
        self.state.cpu = stat.times or self.state.cpu
        readings.add(CPUS, stat.cpus)
        readings.add(BOOT_TIME, stat.boot)
        memory = parse_meminfo(read_text(self.host.proc("meminfo")) or "")
        readings.add(MEMORY_TOTAL, memory.get("MemTotal"))
        readings.add(MEMORY_AVAILABLE, memory.get("MemAvailable"))
        averages = parse_loadavg(read_text(self.host.proc("loadavg")) or "")
        for minutes, average in zip(("1", "5", "15"), averages or ()):
            readings.add(LOAD, average, minutes)

    def _processes(self, readings: Readings) -> None:
        processes, now = self.state.processes, time.monotonic()
        known = processes is not None and processes.blocked is not None
        recent = processes is not None and 0 <= now - processes.at < PROCESSES_SECONDS
        # If nothing else can be read, an earlier look does not show that procfs works now.
        if not (known and recent and readings.samples):
            processes = self.state.processes = look_at_processes(self.host, now)
        if processes is not None:
            readings.add(PROCESSES, processes.number)
            readings.add(BLOCKED, processes.blocked)

    def _clock(self, readings: Readings) -> None:
        # Its difference from other times of the node is correct even if the clock is wrong.
        readings.add(TIME, time.time())
        clock = read_clock_state()
        if clock is not None:
            readings.add(CLOCK_SYNCHRONIZED, clock.synchronized)
            readings.add(CLOCK_OFFSET, clock.offset_seconds)
            readings.add(CLOCK_MAXIMUM_ERROR, clock.maximum_error_seconds)

    def _kernel_counts(self, readings: Readings) -> None:
        allocated = (read_text(self.host.proc("sys/fs/file-nr")) or "").split()
        if len(allocated) == 3:  # allocated, free (always 0 since 2.6), maximum
            readings.add(DESCRIPTORS, parse_integer(allocated[0]))
            readings.add(DESCRIPTORS_MAXIMUM, parse_integer(allocated[2]))
        vmstat = parse_vmstat(read_text(self.host.proc("vmstat")) or "")
        readings.add(OOM_KILLS, vmstat.get("oom_kill"))

    def _memory_errors(self, readings: Readings) -> None:
        for controller in _folders(self.host.sys("devices/system/edac/mc"), "mc"):
            for kind, file in (("corrected", "ce_count"), ("uncorrected", "ue_count")):
                readings.add(MEMORY_ERRORS, read_integer(controller / file), controller.name, kind)

    def _nvme(self, readings: Readings) -> None:
        for controller in _folders(self.host.sys("class/nvme"), "nvme"):
            name, state = controller.name, read_text(controller / "state")
            files = ("model", "serial", "firmware_rev")
            info = [read_label(controller / file) or "" for file in files]
            # The last identity: values that cannot be read for a while have not changed.
            was = self.state.nvme.get(name, [""] * len(files))
            info = [now or last for now, last in zip(info, was)]
            self.state.nvme[name] = info
            readings.add(NVME_INFO, 1, name, *info)
            if state in NVME_STATES:
                readings.add(NVME_LIVE, state == "live", name)
                if info[1]:  # the history identifies it by its serial number
                    readings.condition(info[1], state, name)


def _folders(parent: Path, prefix: str) -> Iterator[Path]:
    for name in list_names(parent):
        if name.startswith(prefix) and name.removeprefix(prefix).isdecimal():
            yield parent / name
