"""Linux calls that Python does not wrap, and the processes in /proc."""

from __future__ import annotations

import contextlib
import ctypes
import os
from collections.abc import Iterator
from typing import NamedTuple

from nodevitals.linux.sysfs import parse_integer, read_text

_LIBC = ctypes.CDLL(None, use_errno=True)
# linux/prctl.h
_PR_SET_PDEATHSIG = 1
_PR_SET_NAME = 15
_PR_SET_CHILD_SUBREAPER = 36
_PR_SET_NO_NEW_PRIVS = 38
_START_FIELD = 19  # of /proc/PID/stat, counted after the command
_TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")


def _prctl(option: int, value: int) -> None:
    if _LIBC.prctl(option, value, 0, 0, 0) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), "prctl")


def die_with_parent(signal_number: int) -> None:
    """Make the kernel send this signal when the thread that started this process ends."""
    _prctl(_PR_SET_PDEATHSIG, signal_number)


def set_name(name: str) -> None:
    """Set the name that the kernel shows for this thread: /proc/PID/comm, 15 bytes."""
    _LIBC.prctl(_PR_SET_NAME, name.encode(), 0, 0, 0)


def set_nice(value: int) -> None:
    """Set this process's niceness, and its session's: with autogroups the kernel divides the
    processors between sessions, and niceness counts only within one (sched(7)). Without permission
    to lower it, or without autogroups, it is unchanged.
    """
    with contextlib.suppress(PermissionError):
        os.setpriority(os.PRIO_PROCESS, 0, value)
    with contextlib.suppress(OSError), open("/proc/self/autogroup", "w", encoding="ascii") as file:
        file.write(str(value))


def become_subreaper() -> None:
    """Become the parent of descendants whose own parent ends, instead of init."""
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)


def forbid_new_privileges() -> None:
    """Prevent programs that this process starts from gaining privileges: by a setuid bit, by file
    capabilities, or because root starts them.
    """
    _prctl(_PR_SET_NO_NEW_PRIVS, 1)


def return_free_memory() -> None:
    """Make the C library return freed memory to the kernel, if it can."""
    with contextlib.suppress(AttributeError):
        _LIBC.malloc_trim(ctypes.c_size_t(0))


WORKER = "nodevitals-"
"""What the kernel's names of an agent's workers begin with; then comes the probe's."""
FORK_SERVER = "nodevitals-fork"
"""The kernel's name of the fork server, the parent of all workers of an agent."""
_HEAD_BYTES = 256


class ProcessStat(NamedTuple):
    """The first fields of /proc/PID/stat."""

    pid: int
    state: str
    parent: int
    session: int


def parse_process_stat(text: str) -> ProcessStat | None:
    """A /proc/PID/stat line; None where it is truncated. The command may contain spaces and
    parentheses, so the fields are counted from the last parenthesis (proc_pid_stat(5)).
    """
    head, bracket, tail = text.rpartition(")")
    fields = tail.split(None, 4)
    if not bracket or len(fields) < 4:
        return None
    pid, parent, session = map(parse_integer, (head.partition(" ")[0], fields[1], fields[3]))
    if pid is None or parent is None or session is None:
        return None
    return ProcessStat(pid, fields[0], parent, session)


def processes(procfs: str = "/proc") -> Iterator[ProcessStat]:
    """Every readable process; processes that end meanwhile are left out. Raises OSError."""
    for _, head in process_heads(procfs, "stat", b")"):
        stat = None if head is None else parse_process_stat(head.decode("utf-8", "replace"))
        if stat is not None:
            yield stat


def process_states(procfs: str = "/proc") -> dict[str, str]:
    """The state of every process by its id, '' for one that cannot be read. Raises OSError."""
    states = {}
    for pid, head in process_heads(procfs, "stat", b")"):
        _, bracket, rest = (head or b"").rpartition(b") ")
        state = rest[:1].decode("ascii", "replace")
        states[pid] = state if bracket and state.isalpha() else ""
    return states


def process_heads(procfs: str, name: str, end: bytes) -> Iterator[tuple[str, bytes | None]]:
    """The head of a file of every process, by its id: None where it cannot be read; processes that
    end meanwhile are left out. Raises OSError where they cannot be listed.

    A node with 200 CPUs has thousands of processes, most of them the kernel's: paths relative to a
    directory take half the time.
    """
    folder = os.open(procfs, os.O_RDONLY | os.O_DIRECTORY)
    try:
        for pid in filter(str.isdigit, os.listdir(folder)):
            try:
                head = _head(f"{pid}/{name}", folder, end)
            except (FileNotFoundError, ProcessLookupError):
                continue
            except OSError:
                head = None
            yield pid, head
    finally:
        os.close(folder)


def _head(path: str, folder: int, end: bytes) -> bytes:
    """The head of a file, in one read, or in several short ones. Raises OSError."""
    descriptor = os.open(path, os.O_RDONLY, dir_fd=folder)
    try:
        data = os.read(descriptor, _HEAD_BYTES)
        while end not in data and (part := os.read(descriptor, _HEAD_BYTES)):
            data += part
    finally:
        os.close(descriptor)
    return data


def seconds_since_start(procfs: str, pid: int) -> float | None:
    """Time since a process started, by the kernel's clock since boot; None where it has ended."""
    fields = (read_text(f"{procfs}/{pid}/stat") or "").rpartition(")")[2].split()
    uptime = (read_text(f"{procfs}/uptime") or "").split()
    try:
        return float(uptime[0]) - int(fields[_START_FIELD]) / _TICKS_PER_SECOND
    except (ValueError, IndexError):
        return None


class LoadAverage(NamedTuple):
    """The fields of /proc/loadavg after the averages."""

    threads: int
    """Number of threads of the system."""
    last_pid: int
    """ID of the process or thread that was created last in this PID namespace."""


def parse_load_average(text: str) -> LoadAverage:
    """/proc/loadavg (proc_loadavg(5)). Raises ValueError and IndexError for anything else."""
    fields = text.split()
    threads, last_pid = parse_integer(fields[3].split("/")[1]), parse_integer(fields[4])
    if threads is None or last_pid is None:
        raise ValueError(text[:100])
    return LoadAverage(threads, last_pid)


def load_average() -> LoadAverage:
    """One small read of /proc/loadavg, to detect new processes without reading each."""
    with open("/proc/loadavg", encoding="ascii") as handle:
        return parse_load_average(handle.read(128))


def children() -> list[int] | None:
    """This process's children, adopted ones included; None without CONFIG_PROC_CHILDREN."""
    try:
        pids: list[int] = []
        for thread in os.listdir("/proc/self/task"):
            with open(f"/proc/self/task/{thread}/children", encoding="ascii") as handle:
                pids.extend(map(int, handle.read().split()))
        return pids
    except OSError:
        return None
