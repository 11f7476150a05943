"""Whether processes on a GPU belong to a job: their pids in, job, no job or unknown out.

In: cgroups and names in procfs, the kubelet's and Slurm's cgroups in sysfs. No driver is called.
Unknown is what cannot be seen: NVML translates pids into the PID namespace of its caller and leaves
out all others without an error, so nothing is known outside the node's own namespace.
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
# Of version 1: one hierarchy per controller.
_CONTROLLERS = ("freezer", "memory", "cpuset", "devices", "pids", "cpu,cpuacct", "systemd")


class Held(NamedTuple):
    """Processes without a job on one GPU. `memory_bytes` is None where NVML does not report it."""

    processes: int
    memory_bytes: Optional[int]


class ProcessOwners:
    """The processes of a node, for one run after the other."""

    def __init__(self, host: Host, ignore: Iterable[str]) -> None:
        self._host = host
        self._ignore = frozenset(ignore)
        self._known = False
        self._without: dict[int, bool | None] = {}

    def start_run(self) -> None:
        """Look again whether processes can be seen, and whether jobs have cgroups here."""
        in_node = link_name(self._host.proc("self/ns/pid")) == _NODE_NAMESPACE
        self._known = in_node and self._jobs_have_cgroups()
        self._without = {}

    def _jobs_have_cgroups(self) -> bool:
        """Whether the kubelet's or Slurm's cgroups are there. Slurm without its cgroup plugins has
        none: then no process is known to be without a job.
        """
        top = self._host.sys(_CGROUPS)
        names = list_names(top)
        scopes = [
            one for name in names if name.endswith(".slice") for one in list_names(top / name)
        ]
        legacy = [one for name in _CONTROLLERS if name in names for one in list_names(top / name)]
        return (
            any(name.endswith("slurmstepd.scope") for name in scopes)
            or any(name.startswith("slurm") for name in legacy)
            or any(name.startswith(("kubepods", "kubelet-kubepods")) for name in names + scopes)
            or any(name.startswith("kubepods") for name in legacy)
        )

    def held(self, processes: Optional[Iterable[Any]]) -> Optional[Held]:
        """What those that have no job hold, of the processes that NVML lists on a GPU; None where
        that is unknown, also of a single process. One that has ended since is known in a later run.
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
