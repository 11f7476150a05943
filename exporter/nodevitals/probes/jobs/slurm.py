"""What Slurm says about a process: its cgroup, and its environment. Pure.

Slurm's daemon, which is root, creates the cgroups; users cannot create one at these places. The
environment is the user's: any process may change its own.
"""

from __future__ import annotations

import re

import msgspec

from nodevitals.linux.sysfs import parse_integer

MAX_TEXT_CHARACTERS = 64
MAX_DEVICES = 64
# https://slurm.schedmd.com/cgroup_v2.html: below systemd's slice (CgroupSlice in cgroup.conf), one
# scope for all jobs, with the node's name where several slurmd share a machine. Within the slice of
# a user only systemd creates cgroups, and a user's own are below a service: there are none here. A
# reader in a cgroup namespace sees paths that begin with `/..`.
_UNIFIED = re.compile(r"(?:/\.\.)*(?:/[^/]+\.slice)+/[^/]*slurmstepd\.scope/job_(\d{1,10})(?:/.*)?")
# https://slurm.schedmd.com/cgroups.html; with a node's name where several slurmd share a machine.
_LEGACY = re.compile(r"(?:/\.\.)*/slurm[^/]*/uid_\d+/job_(\d{1,10})(?:/.*)?")
_POD = re.compile(r"(?:/\.\.){0,64}(?:/kubelet[^/]*)?/(?:kubelet-)?kubepods.*")


def parse_job_id(cgroup: str) -> str:
    """The Slurm job of a process by its /proc/PID/cgroup; '' where it is in none."""
    for line in _lines(cgroup):
        number, _, rest = line.partition(":")
        path = rest.partition(":")[2]
        found = _UNIFIED.fullmatch(path) if number == "0" else _LEGACY.fullmatch(path)
        if found:
            return found[1]
    return ""


def is_pod(cgroup: str) -> bool:
    """Whether a process belongs to a Kubernetes pod; both cgroup drivers of the kubelet."""
    return any(_POD.fullmatch(line.split(":", 2)[-1]) for line in _lines(cgroup))


def parse_uid(status: str) -> int | None:
    """The real user of a process by its /proc/PID/status (proc_pid_status(5))."""
    for line in _lines(status):
        if line.startswith("Uid:"):
            return parse_integer([*line.split(), ""][1])
    return None


def _lines(text: str) -> list[str]:
    """The lines as the kernel ends them. `splitlines` also ends one at a vertical tab and others,
    which the kernel permits in names of processes and cgroups.
    """
    return text.split("\n")


class JobTexts(msgspec.Struct, frozen=True):
    """What the environment of a job's process says. `devices` are numbers of device files: those
    that Slurm allocated to the job or step on this node.
    """

    name: str = ""
    partition: str = ""
    devices: tuple[int, ...] = ()


def parse_environment(data: bytes, job_id: str) -> JobTexts | None:
    """The texts of a job in /proc/PID/environ; None where the environment is not that of this job.

    SLURM_JOB_GPUS and SLURM_STEP_GPUS have the numbers of the device files, also where the devices
    are constrained: https://github.com/SchedMD/slurm, src/plugins/gres/common/gres_common.c.
    """
    found: dict[str, str] = {}
    for entry in data.split(b"\0"):
        if entry.startswith(b"SLURM_"):
            name, _, value = entry.decode("utf-8", "replace").partition("=")
            found.setdefault(name, value)
    if found.get("SLURM_JOB_ID") != job_id:
        return None
    devices = found.get("SLURM_JOB_GPUS") or found.get("SLURM_STEP_GPUS", "")
    return JobTexts(
        label_text(found.get("SLURM_JOB_NAME", "")),
        label_text(found.get("SLURM_JOB_PARTITION", "")),
        _numbers(devices),
    )


def label_text(text: str) -> str:
    """A user's text as the value of a label: one line, and of bounded length."""
    return "".join(one if one.isprintable() else "?" for one in text[:MAX_TEXT_CHARACTERS])


def _numbers(text: str) -> tuple[int, ...]:
    """`0,1,3`; none for any other text."""
    words = text.split(",") if len(text) <= 5 * MAX_DEVICES else []
    numbers = [parse_integer(word) for word in words]
    known = [one for one in numbers if one is not None]
    return tuple(known) if len(known) == len(numbers) <= MAX_DEVICES else ()
