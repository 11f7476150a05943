"""Processes of a simulated node, with the cgroups of its jobs: procfs and sysfs below a folder."""

from __future__ import annotations

import shutil
from pathlib import Path

from testbed.trees import write

NODE_NAMESPACE = "pid:[4026531836]"
POD = "/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod11111111.slice/cri-a.scope"
SLURM_STEP = "/system.slice/slurmstepd.scope/job_4711/step_0/user/task_0"
SESSION = "/user.slice/user-1000.slice/session-7.scope"


class Workloads:
    """No job has cgroups until `kubernetes` or `slurm` was called."""

    def __init__(self, folder: Path, namespace: str = NODE_NAMESPACE) -> None:
        self.folder = folder
        place = folder / "proc/self/ns"
        place.mkdir(parents=True, exist_ok=True)
        (place / "pid").symlink_to(namespace)

    def kubernetes(self) -> None:
        """The kubelet's cgroups."""
        (self.folder / "sys/fs/cgroup/kubepods.slice").mkdir(parents=True)

    def slurm(self, scope: str = "system.slice/slurmstepd.scope") -> None:
        """Those of slurmd, which stay while no job runs."""
        (self.folder / "sys/fs/cgroup" / scope).mkdir(parents=True)

    def process(self, pid: int, cgroup: str = SESSION, name: str = "python3") -> None:
        """A process of any user."""
        write(self.folder / f"proc/{pid}", {"cgroup": f"0::{cgroup}\n", "comm": f"{name}\n"})

    def end(self, pid: int) -> None:
        """The process ends."""
        shutil.rmtree(self.folder / f"proc/{pid}")
