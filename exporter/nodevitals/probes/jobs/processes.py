"""The processes that have an accelerator open, or belong to a job of Slurm.

In: procfs. Out: `Scan`. Processes that end meanwhile are left out; those of pods belong to the
probe `kubernetes`.
"""

from __future__ import annotations

import os
import pwd

import msgspec

from nodevitals.linux.host import Host
from nodevitals.linux.sysfs import exists, parse_integer, read_text
from nodevitals.probe import Readings
from nodevitals.probes.common.cgroups import is_pod, parse_job_id
from nodevitals.probes.common.device_files import (
    DeviceFile,
    OwnProcesses,
    open_accelerators,
)
from nodevitals.probes.jobs.slurm import (
    JobTexts,
    label_text,
    parse_environment,
    parse_uid,
)

# A job of MPI may have hundreds of processes, and its first ones are Slurm's own.
MAX_TRIES = 8
MAX_ENVIRONMENT_BYTES = 1024 * 1024
_PIECE_BYTES = 65536


class Process(msgspec.Struct, frozen=True):
    """A process with its job ('' where it has none) and the device files that it has open."""

    pid: int
    job_id: str
    files: frozenset[DeviceFile]


class Scan(msgspec.Struct, frozen=True):
    """All processes that matter, by PID, and the number of those that cannot be seen: they are left
    out, or a part of their files.
    """

    processes: tuple[Process, ...]
    hidden: int


def scan(procfs: str, own: OwnProcesses) -> Scan:
    """Look at every process once. Raises OSError where they cannot be listed."""
    found = []
    hidden = 0
    for pid in sorted(map(int, filter(str.isdecimal, os.listdir(procfs)))):
        opened = open_accelerators(procfs, str(pid))
        folder = os.path.join(procfs, str(pid))
        cgroup = read_text(os.path.join(folder, "cgroup"))
        if cgroup is None:
            hidden += exists(folder) is not False
            continue
        job_id = parse_job_id(cgroup)
        if (opened.files or job_id) and not is_pod(cgroup):
            is_own = own.include(str(pid))
            hidden += is_own is None or not opened.complete
            if is_own is False:
                found.append(Process(pid, job_id, opened.files))
        else:
            hidden += not opened.complete
    return Scan(tuple(found), hidden)


class ProcessReader:
    """Reads what identifies the owners of processes, each with the name of what is read: a process
    that waits for its own memory lets the reader of its environment wait, too.
    """

    def __init__(self, host: Host, readings: Readings) -> None:
        self._host = host
        self._readings = readings

    def uid(self, pid: int) -> int | None:
        """The user of a process."""
        return parse_uid(read_text(self._host.proc(f"{pid}/status")) or "")

    def job_texts(self, job_id: str, pids: list[int]) -> JobTexts | None:
        """The texts of a job by the first environment that has them."""
        for pid in pids[:MAX_TRIES]:
            place = f"process {pid}"
            if place in self._readings.interrupted:
                continue
            self._readings.at(place, "environ")
            texts = parse_environment(self._environment(pid), job_id)
            if texts is not None:
                return texts
        return None

    def user_name(self, uid: int) -> str | None:
        """The name of a user; None where the node does not know one. The name service may hang."""
        place = f"user {uid}"
        if place in self._readings.interrupted:
            return None
        self._readings.at(place, "getpwuid")
        if self._host.rootfs != "/":
            return self._name_in_file(uid)
        try:
            return label_text(pwd.getpwuid(uid).pw_name)
        except (KeyError, OverflowError):
            return None

    def _name_in_file(self, uid: int) -> str | None:
        for line in (read_text(self._host.root("/etc/passwd")) or "").splitlines():
            fields = line.split(":")
            if len(fields) > 2 and parse_integer(fields[2]) == uid:
                return label_text(fields[0])
        return None

    def _environment(self, pid: int) -> bytes:
        data = b""
        try:
            descriptor = os.open(self._host.proc(f"{pid}/environ"), os.O_RDONLY)
            try:
                while len(data) < MAX_ENVIRONMENT_BYTES:
                    part = os.read(descriptor, _PIECE_BYTES)
                    if not part:
                        break
                    data += part
            finally:
                os.close(descriptor)
        except OSError:  # it has ended, or may not be read
            return b""
        return data
