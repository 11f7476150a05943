"""Finds the job of a process by its cgroup, as /proc/PID/cgroup shows it. Pure.

Slurm's daemon and the kubelet create these cgroups as root; users cannot create cgroups at these
places.
"""

from __future__ import annotations

import re

# https://slurm.schedmd.com/cgroup_v2.html: below systemd's slice (CgroupSlice in cgroup.conf), one
# scope for all jobs, with the node's name where several slurmd share a machine. Within the slice of
# a user only systemd creates cgroups, and users create theirs below a service, so never here. A
# reader in a cgroup namespace sees paths that begin with `/..`.
_UNIFIED = re.compile(r"(?:/\.\.)*(?:/[^/]+\.slice)+/[^/]*slurmstepd\.scope/job_(\d{1,10})(?:/.*)?")
# https://slurm.schedmd.com/cgroups.html; with a node's name where several slurmd share a machine.
_LEGACY = re.compile(r"(?:/\.\.)*/slurm[^/]*/uid_\d+/job_(\d{1,10})(?:/.*)?")
_POD = re.compile(r"(?:/\.\.){0,64}(?:/kubelet[^/]*)?/(?:kubelet-)?kubepods.*")
# The same for a reader in the cgroup namespace of a pod, where the ancestors are missing: the
# kubelet's driver `cgroupfs` gives the names of pods no prefix.
_SISTER_POD = re.compile(r"(?:/\.\.){1,64}(?:/burstable|/besteffort)?/pod[0-9a-f-]{32,36}(?:/.*)?")


def parse_job_id(cgroup: str) -> str:
    """The Slurm job of a process by its /proc/PID/cgroup; '' if it is in none."""
    for line in _lines(cgroup):
        number, _, rest = line.partition(":")
        path = rest.partition(":")[2]
        match = _UNIFIED.fullmatch(path) if number == "0" else _LEGACY.fullmatch(path)
        if match:
            return match[1]
    return ""


def is_pod(cgroup: str) -> bool:
    """Whether a process belongs to a Kubernetes pod, for both cgroup drivers of the kubelet."""
    paths = [line.split(":", 2)[-1] for line in _lines(cgroup)]
    return any(_POD.fullmatch(path) or _SISTER_POD.fullmatch(path) for path in paths)


def _lines(text: str) -> list[str]:
    """The lines of a text, split only at newlines. `splitlines` also splits at a vertical tab and
    at other characters, which names of cgroups may contain.
    """
    return text.split("\n")
