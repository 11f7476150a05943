"""Probe `jobs`: which job of Slurm, or which user, has which accelerator. For nodes without a
kubelet; on others the probe `kubernetes` fills the same family.

In: the device files that processes have open, their cgroups and environments. Out:
`nodevitals_pod_accelerator_info`, and `jobs_*`. The kernel shows which process has a device
open, and the job of a process. The environment is used only for the texts of a job, and for devices
that the job has and has not opened.

A process belongs to its job, or else to its user. A device that Slurm allocated to a job counts for
it also while no process has it open. Only the job's environment shows that, and its user can change
it, so an open device of another job or user takes precedence.

Processes that end meanwhile are left out; those of pods belong to the probe `kubernetes`.
"""

from __future__ import annotations

import os
import pwd
from collections.abc import Iterable, Mapping
from typing import Optional, Union

import msgspec

from nodevitals.linux.host import Host
from nodevitals.linux.sysfs import exists, list_names, parse_integer, read_text
from nodevitals.probe import Absent, Families, Probe, ProbeError, ProbeSettings, Readings, Seconds
from nodevitals.probes.common.accelerators import ACCELERATOR_INFO
from nodevitals.probes.common.cgroups import is_pod, parse_job_id
from nodevitals.probes.common.device_files import (
    WATCHERS,
    DeviceFile,
    OwnProcesses,
    open_accelerators,
    sees_kernel,
)
from nodevitals.probes.common.device_names import DeviceNames, NpuNames
from nodevitals.probes.jobs.devices import DeviceState, DeviceTable
from nodevitals.probes.jobs.slurm import JobTexts, label_text, parse_environment, parse_uid


class Unit(msgspec.Struct, frozen=True, order=True):
    """A job or user, with the labels of the family."""

    namespace: str
    pod: str
    job_name: str
    owner: str
    queue: str


def with_allocations(
    opened: Iterable[tuple[Unit, DeviceFile]], allocated: Mapping[Unit, Iterable[DeviceFile]]
) -> set[tuple[Unit, DeviceFile]]:
    """The devices that each unit has open, and those allocated to it that no other has open."""
    pairs = set(opened)
    holders: dict[DeviceFile, set[Unit]] = {}
    for unit, file in pairs:
        holders.setdefault(file, set()).add(unit)
    free = {
        (unit, file)
        for unit, files in allocated.items()
        for file in files
        if holders.get(file, set()) <= {unit}
    }
    return pairs | free


# An MPI job may have hundreds of processes, and the first ones belong to Slurm itself.
MAX_TRIES = 8
MAX_ENVIRONMENT_BYTES = 1024 * 1024
_PIECE_BYTES = 65536


class Process(msgspec.Struct, frozen=True):
    """A process with its job ('' if it has none) and the device files that it has open."""

    pid: int
    job_id: str
    files: frozenset[DeviceFile]


class Scan(msgspec.Struct, frozen=True):
    """The processes to report, by PID, and the number of processes that cannot be read as a whole:
    they are left out, or some of their files are.
    """

    processes: tuple[Process, ...]
    hidden: int


def scan(procfs: str, own: OwnProcesses) -> Scan:
    """Look at every process once. Raises OSError where they cannot be listed."""
    processes = []
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
                processes.append(Process(pid, job_id, opened.files))
        else:
            hidden += not opened.complete
    return Scan(tuple(processes), hidden)


class ProcessReader:
    """Reads what identifies the owners of processes, and names each file before it reads it:
    reading the environment of a process that waits for its memory may hang.
    """

    def __init__(self, host: Host, readings: Readings) -> None:
        self._host = host
        self._readings = readings

    def uid(self, pid: int) -> int | None:
        """The user of a process."""
        return parse_uid(read_text(self._host.proc(f"{pid}/status")) or "")

    def job_texts(self, job_id: str, pids: list[int]) -> JobTexts | None:
        """The texts of a job from the first environment that has them."""
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
        """The name of a user; None if the node does not know it. The name service may hang."""
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


metrics = Families("jobs")
PROCESSES = metrics.gauge(
    "processes",
    "Number of processes that have an accelerator open, without those of pods and of monitoring "
    "programs.",
)
UNIDENTIFIED = metrics.gauge(
    "unidentified_devices",
    "Number of device files that processes have open and whose accelerator is not known.",
)
OMITTED = metrics.gauge(
    "omitted_series", "Number of pairs of a job or user and an accelerator over the limit of 500."
)

MAX_SERIES = 500
MAX_JOBS = 5000
KUBELET_SOCKET = "/var/lib/kubelet/pod-resources/kubelet.sock"
# Files of packages and of configless nodes; defaults of SlurmdPidFile and SlurmdSpoolDir.
SLURM_PATHS = (
    "/etc/slurm/slurm.conf",
    "/run/slurm/conf/slurm.conf",
    "/run/slurmd.pid",
    "/run/slurm/slurmd.pid",
    "/var/spool/slurmd",
)


class JobsSettings(ProbeSettings, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Whose processes count. `auto`: where Slurm is, and no kubelet."""

    interval: Optional[Seconds] = 30.0
    """Time between two looks at all processes."""
    users: bool = True
    """Whether to report processes of no job by their user."""
    allocations: bool = True
    """Whether an accelerator that no process has open counts for the job that has it by its
    environment (SLURM_JOB_GPUS, SLURM_STEP_GPUS), which users can change."""
    ignore: tuple[str, ...] = (*WATCHERS, "slurmd", "slurmstepd")
    """Names of processes that may have accelerators open; at most 15 characters each."""


class Job(msgspec.Struct):
    """The facts of a job that are kept while it runs."""

    uid: Optional[int] = None
    texts: Optional[JobTexts] = None


class JobsState(msgspec.Struct):
    """The accelerators, the jobs that run, the names of their users."""

    devices: DeviceState = msgspec.field(default_factory=DeviceState)
    jobs: dict[str, Job] = {}
    users: dict[int, str] = {}


class JobsProbe(Probe):
    """Accelerators of Slurm jobs and users, by the device files that processes have open."""

    name = "jobs"
    families = (ACCELERATOR_INFO, *metrics)
    shared = True
    Settings = JobsSettings
    State = JobsState
    Message = Union[DeviceNames, NpuNames]
    settings: JobsSettings
    state: JobsState

    def run(self, readings: Readings) -> None:
        """Look at all processes, and report what they have."""
        self._require_node()
        self._reader = ProcessReader(self.host, readings)
        self._devices = DeviceTable(self.host, self.state.devices, readings)
        own = OwnProcesses(self.host.procfs, self.settings.ignore)
        readings.at("all processes", "readlink")
        try:
            scanned = scan(self.host.procfs, own)
        except OSError as error:
            raise ProbeError("procfs", f"{self.host.procfs}: {error.strerror}") from None
        using = sum(bool(process.files) for process in scanned.processes)
        readings.add(PROCESSES, None if scanned.hidden else using)
        self._read_jobs(scanned.processes)
        self._report(scanned.processes, readings)
        if scanned.hidden:
            text = f"number of processes that cannot be read: {scanned.hidden}"
            needs = "CAP_SYS_PTRACE and CAP_DAC_READ_SEARCH are needed"
            raise ProbeError("permission", f"{text}; {needs}")

    def _require_node(self) -> None:
        if not self.settings.required:
            if exists(self.host.root(KUBELET_SOCKET)):
                text = "the kubelet assigns the devices: see probe kubernetes"
                raise Absent(f"{KUBELET_SOCKET} is there: {text}")
            if not self._has_slurm():
                raise Absent("no Slurm on this node; `enabled: true` reports users of devices")
        if not sees_kernel(self.host.procfs):
            text = f"{self.host.procfs} does not show the node's processes"
            raise ProbeError("processes", f"{text}: in a container, hostPID is needed")

    def _has_slurm(self) -> bool:
        scopes = list_names(self.host.sys("fs/cgroup/system.slice"))
        # If that cannot be read, it may exist.
        return any(exists(self.host.root(path)) is not False for path in SLURM_PATHS) or any(
            name.endswith("slurmstepd.scope") for name in scopes
        )

    def _read_jobs(self, processes: tuple[Process, ...]) -> None:
        """Read the missing facts of the jobs that run; forget the other jobs."""
        pids: dict[str, list[int]] = {}
        for process in processes:
            if process.job_id:
                pids.setdefault(process.job_id, []).append(process.pid)
        running = {job_id: self.state.jobs.get(job_id, Job()) for job_id in list(pids)[:MAX_JOBS]}
        self.state.jobs = running
        for job_id, job in running.items():
            if not job.uid:  # the processes of root may have been only the first ones
                job.uid = self._uid(pids[job_id])
            if job.texts is None:
                job.texts = self._reader.job_texts(job_id, pids[job_id])

    def _uid(self, pids: list[int]) -> int | None:
        """The user of these processes; root only if all of them belong to root."""
        uids = [uid for uid in map(self._reader.uid, pids[:MAX_TRIES]) if uid is not None]
        return next(filter(None, uids), uids[0] if uids else None)

    def _report(self, processes: tuple[Process, ...], readings: Readings) -> None:
        known, unknown = set(), set()
        for unit, file in self._pairs(processes):
            device = self._devices.find(file)
            if device is None:
                unknown.add(file)
            else:
                known.add((unit, file.vendor, device))
        for unit, vendor, device in sorted(known)[:MAX_SERIES]:
            labels = (unit.namespace, unit.pod, "", unit.job_name, unit.owner, unit.queue)
            readings.add(ACCELERATOR_INFO, 1, *labels, vendor, *device)
        readings.add(UNIDENTIFIED, len(unknown))
        readings.add(OMITTED, max(0, len(known) - MAX_SERIES))

    def _pairs(self, processes: tuple[Process, ...]) -> set[tuple[Unit, DeviceFile]]:
        """Each job or user with the device files that it has."""
        self._users: dict[int, str | None] = {}
        jobs = {job_id: self._job_unit(job_id, job) for job_id, job in self.state.jobs.items()}
        opened = []
        for process in filter(lambda process: process.files, processes):
            unit = jobs.get(process.job_id)
            if unit is None and self.settings.users and not process.job_id:
                unit = self._user_unit(process.pid)
            if unit is not None:
                opened += [(unit, file) for file in process.files]
        allocated = {}
        if self.settings.allocations and not self._devices.is_partitioned():
            for job_id, job in self.state.jobs.items():
                files = [file for file in _allocated(job) if self._devices.find(file)]
                allocated[jobs[job_id]] = files
        self.state.users = {uid: name for uid, name in self._users.items() if name}
        return with_allocations(opened, allocated)

    def _job_unit(self, job_id: str, job: Job) -> Unit:
        texts = job.texts or JobTexts()
        owner = "" if job.uid is None else self._user(job.uid)
        return Unit("slurm", job_id, texts.name, owner, texts.partition)

    def _user_unit(self, pid: int) -> Unit | None:
        uid = self._reader.uid(pid)
        if uid is None:  # it has ended
            return None
        name = self._user(uid)
        return Unit("user", name, "", name, "")

    def _user(self, uid: int) -> str:
        """The name of a user, or else the number; a known name is not looked up again."""
        if uid not in self._users:
            self._users[uid] = self.state.users.get(uid) or self._reader.user_name(uid)
        return self._users[uid] or str(uid)


def _allocated(job: Job) -> list[DeviceFile]:
    """The devices of Slurm's gres `gpu`; for NPUs, Slurm sets no such variable."""
    return [DeviceFile("nvidia", number) for number in job.texts.devices] if job.texts else []
