"""Decides whether processes on a GPU belong to a job: pids in; job, no job or unknown out.

In: cgroups and names in procfs, the kubelet's and Slurm's cgroups in sysfs. No driver is called.
A process that cannot be seen is unknown: NVML translates pids into the PID namespace of its caller
and omits all others without an error, so outside the node's own namespace all are unknown.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple, Optional

from nodevitals.linux.host import Host
from nodevitals.linux.sysfs import link_name, list_names, read_text
from nodevitals.probes.common.cgroups import is_pod, parse_job_id
from nodevitals.probes.common.device_files import WATCHERS

# Monitoring programs, and the server through which the processes of several jobs share a GPU. The
# kernel cuts the names of processes after 15 characters.
NO_JOBS = (*WATCHERS, "nvidia-cuda-mps", "nvidia-imex", "Xorg")
# The inode of the node's own PID namespace is fixed: PROC_PID_INIT_INO, include/linux/proc_ns.h.
_NODE_NAMESPACE = "pid:[4026531836]"
_CGROUPS = "fs/cgroup"
# Cgroups version 1: one hierarchy per controller.
_CONTROLLERS = ("freezer", "memory", "cpuset", "devices", "pids", "cpu,cpuacct", "systemd")


class Held(NamedTuple):
    """Processes without a job on one GPU. `memory_bytes` is None if NVML does not report it."""

    processes: int
    memory_bytes: Optional[int]


class ProcessOwners:
    """Finds the owners of processes on a node, in one run after the other."""

    def __init__(self, host: Host, ignore: Iterable[str]) -> None:
        self._host = host
        self._ignore = frozenset(ignore)
        self._known = False
        self._without: dict[int, bool | None] = {}

    def start_run(self) -> None:
        """Check again whether processes can be seen, and whether jobs have cgroups here."""
        in_node = link_name(self._host.proc("self/ns/pid")) == _NODE_NAMESPACE
        self._known = in_node and self._jobs_have_cgroups()
        self._without = {}

    def _jobs_have_cgroups(self) -> bool:
        """Whether the kubelet's or Slurm's cgroups exist. Slurm without its cgroup plugins has
        none: then any process may belong to a job.
        """
        top = self._host.sys(_CGROUPS)
        names = list_names(top)
        scopes = [
            scope for name in names if name.endswith(".slice") for scope in list_names(top / name)
        ]
        legacy = [
            group for name in _CONTROLLERS if name in names for group in list_names(top / name)
        ]
        return (
            any(name.endswith("slurmstepd.scope") for name in scopes)
            or any(name.startswith("slurm") for name in legacy)
            or any(name.startswith(("kubepods", "kubelet-kubepods")) for name in names + scopes)
            or any(name.startswith("kubepods") for name in legacy)
        )

    def held(self, processes: Optional[Iterable[Any]]) -> Optional[Held]:
        """The processes without a job, of those that NVML lists on a GPU, and their memory; None if
        that is unknown for any process. A process that has ended is resolved in a later run.
        """
        if processes is None or not self._known:
            return None
        pids, sizes = set(), []
        for process in processes:
            without = self._is_without_job(process.pid)
            if without is None:
                return None
            if without:
                pids.add(process.pid)
                sizes.append(process.usedGpuMemory)
        known = [size for size in sizes if size is not None]
        return Held(len(pids), sum(known) if len(known) == len(sizes) else None)

    def _is_without_job(self, pid: int) -> bool | None:
        if pid not in self._without:
            self._without[pid] = self._look(pid)
        return self._without[pid]

    def _look(self, pid: int) -> bool | None:
        cgroup = read_text(self._host.proc(f"{pid}/cgroup"))
        if not cgroup:
            return None
        if parse_job_id(cgroup) or is_pod(cgroup):
            return False
        name = read_text(self._host.proc(f"{pid}/comm"))
        return None if name is None else name.rstrip("\n") not in self._ignore
