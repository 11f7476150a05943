"""Which job a process belongs to by its cgroup, as /proc/PID/cgroup shows it. Pure.

Slurm's daemon and the kubelet, which are root, create these cgroups; users cannot create one at
these places.
"""

from __future__ import annotations

import re

# https://slurm.schedmd.com/cgroup_v2.html: below systemd's slice (CgroupSlice in cgroup.conf), one
# scope for all jobs, with the node's name where several slurmd share a machine. Within the slice of
# a user only systemd creates cgroups, and a user's own are below a service: there are none here. A
# reader in a cgroup namespace sees paths that begin with `/..`.
_UNIFIED = re.compile(r"(?:/\.\.)*(?:/[^/]+\.slice)+/[^/]*slurmstepd\.scope/job_(\d{1,10})(?:/.*)?")
# https://slurm.schedmd.com/cgroups.html; with a node's name where several slurmd share a machine.
_LEGACY = re.compile(r"(?:/\.\.)*/slurm[^/]*/uid_\d+/job_(\d{1,10})(?:/.*)?")
_POD = re.compile(r"(?:/\.\.){0,64}(?:/kubelet[^/]*)?/(?:kubelet-)?kubepods.*")
# The same, seen by a reader in the cgroup namespace of a pod, whose ancestors are left out: the
# kubelet's driver `cgroupfs` has no prefix in the names of pods.
_SISTER_POD = re.compile(r"(?:/\.\.){1,64}(?:/burstable|/besteffort)?/pod[0-9a-f-]{32,36}(?:/.*)?")


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
    paths = [line.split(":", 2)[-1] for line in _lines(cgroup)]
    return any(_POD.fullmatch(path) or _SISTER_POD.fullmatch(path) for path in paths)


def _lines(text: str) -> list[str]:
    """The lines as the kernel ends them. `splitlines` also ends one at a vertical tab and others,
    which the kernel permits in names of processes and cgroups.
    """
    return text.split("\n")
