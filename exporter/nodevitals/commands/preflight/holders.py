"""Finds the processes that have a GPU open, and tests whether file systems answer on a job's paths.

Both may hang in the kernel, so each runs in a process of its own, which may be abandoned. A thread
in uninterruptible sleep would keep this process from ending, and its parent, a prolog, would wait.
Processes are read only where a GPU is in use: there may be thousands, and opening a GPU's file
calls the driver. The agent itself exposes only the numbers of processes.
"""

from __future__ import annotations

import os
import pwd
import re
import select
import shlex
import signal
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import NamedTuple

import msgspec

from nodevitals.commands.doctor.findings import OK, PROBLEM, Finding, listed, printable
from nodevitals.linux.sysfs import list_names, read_text
from nodevitals.probes.common.cgroups import parse_job_id
from nodevitals.probes.common.device_files import WATCHERS, open_accelerators
from nodevitals.probes.common.nvidia import normal_bus_id
from nodevitals.probes.jobs.devices import GPUS, parse_information
from nodevitals.probes.jobs.slurm import parse_uid

_CHUNK_BYTES = 1 << 16
MAX_BYTES = 1 << 22


class Child(NamedTuple):
    """A process, and the end of its pipe."""

    pid: int
    read_end: int


def start_child(work: Callable[[], Iterable[bytes]], seconds: float) -> Child:
    """Start a process that writes what `work` returns, and ends after so many seconds. It forks:
    call it before threads are started.
    """
    read_end, write_end = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            # The child's own time limit, also where this process is killed.
            signal.signal(signal.SIGALRM, signal.SIG_DFL)
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            signal.setitimer(signal.ITIMER_REAL, seconds)
            os.close(read_end)
            # The child may be abandoned: a reader of the command's output must not wait for it.
            with open(os.devnull, "r+b", buffering=0) as nothing:
                for descriptor in (0, 1, 2):
                    os.dup2(nothing.fileno(), descriptor)
            with open(write_end, "wb", buffering=0) as pipe:
                pipe.writelines(work())
        finally:
            os._exit(0)  # whatever was raised: there must not be a second preflight
    os.close(write_end)
    return Child(pid, read_end)


def answer(child: Child, deadline: float) -> bytes:
    """The output of the child until the deadline. The child is ended; one that hangs in the kernel
    is abandoned.
    """
    parts: list[bytes] = []
    size, ended = 0, False
    while not ended and size < MAX_BYTES:
        left = max(deadline - time.monotonic(), 0.0 if parts else 0.05)
        if not select.select([child.read_end], [], [], left)[0]:
            break
        part = os.read(child.read_end, _CHUNK_BYTES)
        parts.append(part)
        size += len(part)
        ended = not part
    os.close(child.read_end)
    with suppress(ProcessLookupError):
        os.kill(child.pid, signal.SIGKILL)
    with suppress(ChildProcessError):
        os.waitpid(child.pid, 0 if ended else os.WNOHANG)
    return b"".join(parts)


_TEXT_BYTES = 512

Started = dict[str, Child]
"""By path the process that looks at it."""


def start_search(paths: Sequence[str], write: bool, seconds: float) -> Started:
    """Start to test paths, for at most `seconds`. This forks: call it before starting threads."""
    return {path: _start(path, write, seconds) for path in dict.fromkeys(paths)}


def place_findings(started: Started, deadline: float) -> list[Finding]:
    """A finding per path."""
    return [_finding(path, search, deadline) for path, search in started.items()]


def _start(path: str, write: bool, seconds: float) -> Child:
    return start_child(
        lambda: [_search(path, write).encode("utf-8", "replace")[:_TEXT_BYTES]], seconds
    )


def _search(path: str, write: bool) -> str:
    """What is wrong with a path; `ok` where nothing is."""
    try:
        with os.scandir(path) as entries:
            next(entries, None)
        os.statvfs(path)
    except OSError as error:
        return error.strerror or "cannot be listed"
    except ValueError as error:  # a NUL
        return str(error)
    if write and not os.access(path, os.W_OK | os.X_OK):
        return "no permission to write, or read-only"
    return "ok"


def _finding(path: str, child: Child, deadline: float) -> Finding:
    text = answer(child, deadline).decode("utf-8", "replace")
    name = printable(path, 160)
    if text == "ok":
        return Finding("paths", OK, f"{name} answers")
    problem = text or "does not answer: its file server or the network to it hangs"
    remedy = f"findmnt -T {shlex.quote(name)}"
    return Finding("paths", PROBLEM, printable(f"{name}: {problem}"), remedy)


MAX_PROCESSES = 5000
_SHOWN = 3
_BUS_ID = re.compile(r"[0-9a-fA-F]{4,8}:[0-9a-fA-F]{2}:[0-9a-fA-F]{2}(?:\.[0-7])?")
# The agent itself and other monitoring programs have the GPUs open.
_OWN = "nodevitals"


class Process(msgspec.Struct, array_like=True):
    """A process that has the GPU with this minor number open."""

    minor: int
    pid: int
    name: str
    uid: int
    job: str


class _Lines(msgspec.Struct):
    """The parts of the answer; the part that may hang comes last."""

    processes: list[Process] = []
    minors: dict[str, int] = {}
    users: dict[int, str] = {}


class Holders(NamedTuple):
    """The child that searches on request, and the end of the pipe for requests."""

    child: Child
    ask_end: int


def start(procfs: str, seconds: float) -> Holders:
    """Start a process that waits for a request. This forks: call it before starting threads."""
    wait_end, ask_end = os.pipe()

    def work() -> Iterator[bytes]:
        os.close(ask_end)
        if os.read(wait_end, 1):
            yield from _look(procfs)

    child = start_child(work, seconds)
    os.close(wait_end)
    return Holders(child, ask_end)


def descriptions(holders: Holders, bus_ids: Mapping[str, str], deadline: float) -> dict[str, str]:
    """Texts such as `process 4242 python, user alice` by index; `bus_ids` are the PCI bus ids of
    the GPUs that are in use, by index.
    """
    with suppress(OSError):  # the child has reached its time limit
        os.write(holders.ask_end, b"?" if bus_ids else b"")
    os.close(holders.ask_end)
    lines = _parsed(answer(holders.child, deadline if bus_ids else 0.0))
    by_minor: dict[int, list[Process]] = {}
    for process in lines.processes:
        by_minor.setdefault(process.minor, []).append(process)
    described = {}
    for index, bus_id in bus_ids.items():
        minor = lines.minors.get(normal_bus_id(bus_id)) if _BUS_ID.fullmatch(bus_id) else None
        if minor is not None and minor in by_minor:
            texts = [_described(process, lines.users) for process in by_minor[minor]]
            described[index] = listed(texts, _SHOWN)
    return described


def _described(process: Process, users: Mapping[int, str]) -> str:
    user = users.get(process.uid, str(process.uid))
    job = f", job {process.job}" if process.job else ""
    return f"process {process.pid} {printable(process.name, 20)}, user {printable(user, 40)}{job}"


def _look(procfs: str) -> Iterator[bytes]:
    processes = list(_processes(procfs))
    yield _line(_Lines(processes=processes))
    minors = {}
    folder = os.path.join(procfs, GPUS)
    for name in filter(_BUS_ID.fullmatch, list_names(folder)):
        gpu = parse_information(read_text(os.path.join(folder, name, "information")) or "")
        if gpu is not None:
            minors[normal_bus_id(name)] = gpu.minor
    yield _line(_Lines(minors=minors))
    yield _line(_Lines(users=dict(_users({process.uid for process in processes}))))


def _processes(procfs: str) -> Iterator[Process]:
    count = 0
    for pid in sorted(map(int, filter(str.isdecimal, os.listdir(procfs)))):
        files = open_accelerators(procfs, str(pid)).files
        minors = [file.number for file in files if file.vendor == "nvidia"]
        if not minors:
            continue
        folder = os.path.join(procfs, str(pid))
        text = read_text(os.path.join(folder, "stat")) or ""
        name = text.partition("(")[2].rpartition(")")[0]
        cgroup = read_text(os.path.join(folder, "cgroup")) or ""
        if name in WATCHERS or name.startswith(_OWN) or f"/{_OWN}" in cgroup:
            continue
        uid = parse_uid(read_text(os.path.join(folder, "status")) or "")
        for minor in sorted(minors):
            count += 1
            if count > MAX_PROCESSES:
                return
            yield Process(minor, pid, name, -1 if uid is None else uid, parse_job_id(cgroup))


def _users(uids: set[int]) -> Iterator[tuple[int, str]]:
    """The names of users. The name service may hang: it is queried last."""
    for uid in sorted(uids):
        try:
            yield uid, pwd.getpwuid(uid).pw_name
        except (KeyError, OverflowError):
            continue


def _line(lines: _Lines) -> bytes:
    return msgspec.json.encode(lines) + b"\n"


def _parsed(text: bytes) -> _Lines:
    """The parts of the answer that were received."""
    lines = _Lines()
    for line in text.split(b"\n")[:-1]:
        part = msgspec.json.decode(line, type=_Lines)
        lines.processes = part.processes or lines.processes
        lines.minors = part.minors or lines.minors
        lines.users = part.users or lines.users
    return lines
