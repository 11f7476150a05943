"""Processes of a simulated node, as directories of a procfs: files, cgroup, user, environment."""

from __future__ import annotations

from pathlib import Path

from testbed.trees import write

KTHREADD = "2 (kthreadd) S 0 0 0 0 -1 2129984 0 0 0 0 0 0 0 0 20 0 1 0 2 0 0 0 0 0 0 0 0\n"
SCOPE = "0::/system.slice/slurmstepd.scope"


def kernel(procfs: Path) -> Path:
    """Write kthreadd, by which a procfs is known to be the node's."""
    return write(procfs, {"2/stat": KTHREADD, "2/cgroup": "0::/\n"})


def add(
    procfs: Path,
    pid: int,
    *files: str,
    cgroup: str = "0::/user.slice/user-1000.slice/session-2.scope",
    uid: int = 1000,
    name: str = "python",
    environment: dict[str, str] | None = None,
) -> None:
    """Add a process that has these files open."""
    variables = {"PATH": "/usr/bin", **(environment or {})}
    texts = {
        "stat": f"{pid} ({name}) S 42 {pid} {pid} 0 -1 4194560 1 0 0 0 0 0 0 0\n",
        "status": f"Name:\t{name}\nUid:\t{uid}\t{uid}\t{uid}\t{uid}\nGid:\t5\t5\t5\t5\n",
        "cgroup": f"{cgroup}\n",
        "environ": "".join(f"{key}={value}\0" for key, value in variables.items()),
    }
    write(procfs / str(pid), texts)
    folder = procfs / str(pid) / "fd"
    folder.mkdir()
    for number, target in enumerate(("/dev/null", "socket:[4711]", *files)):
        (folder / str(number)).symlink_to(target)


def add_job(procfs: Path, pid: int, job_id: str, *files: str, **variables: str) -> None:
    """Add a process of a job of Slurm; `variables` without their prefix."""
    environment = {"SLURM_JOB_ID": job_id, "SLURM_JOB_NAME": "train", "SLURM_JOB_PARTITION": "gpu"}
    environment |= {f"SLURM_{name}": value for name, value in variables.items()}
    cgroup = f"{SCOPE}/job_{job_id}/step_0/user/task_0"
    add(procfs, pid, *files, cgroup=cgroup, environment=environment)


def add_gpu(root: Path, slot: str, minor: int, uuid: str) -> None:
    """Add a GPU of NVIDIA's driver, in proc and sys below `root`."""
    add_gpu_file(root / "proc", slot, minor, uuid)
    device = root / "sys/bus/pci/devices" / slot
    device.mkdir(parents=True)
    (device / "driver").symlink_to("../../drivers/nvidia")


def add_gpu_file(procfs: Path, slot: str, minor: int, uuid: str = "") -> None:
    """Add the file of a GPU; without a uuid, one that no program has opened yet."""
    text = (
        f"Model: \t\t NVIDIA H100 80GB HBM3\nIRQ:   \t\t 161\n"
        f"GPU UUID: \t {uuid or 'GPU-????????-????-????-????-????????????'}\n"
        f"Bus Location: \t {slot}\nDevice Minor: \t {minor}\nGPU Excluded:\t No\n"
    )
    write(procfs / "driver/nvidia/gpus" / slot, {"information": text})
