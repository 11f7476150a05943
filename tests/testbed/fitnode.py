"""A node on which a job may start: an agent on a simulated machine without any defect, and ways to
put defects into it.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from testbed import gpus, nics, processes
from testbed.gpus import Machine
from testbed.node import Node, run, wait_until
from testbed.pipeline import synchronized_clock
from testbed.systemd import BUS, PRIVATE, Systemd, Unit
from testbed.trees import write

GPUS = 8
PROFILE = """\
name: fit
expect:
  accelerator.count: 8
  nvidia.ecc: "on"
  nvidia.mig: "off"
  accelerator.driver: "580.95.05"
  kernel.release: "6.8.0-60-example"
  module.nvidia_peermem: loaded
  rdma.firmware: "28.99.1000"
  sysctl.kernel.numa_balancing: 0
  cpu.governor: performance
"""


class FitNode:
    """An agent with eight GPUs, six ports, a mount and a profile, all of them as they should be."""

    def __init__(self, folder: Path, interval: str = "1s", healthy_gpus: int = GPUS) -> None:
        self.folder = folder
        self.machine = Machine(folder, "H100", healthy_gpus).start()
        self.nics = nics.Machine(folder / "sys", mlx5_infiniband=4, mlx5_roce=2)
        self.mount = folder / "data"
        self.mount.mkdir()
        subprocess.run(["mount", "-t", "tmpfs", "data", self.mount], check=True)
        for number in range(healthy_gpus):
            self.machine.set(number, processes=0, memory_used=600 << 20)
        cpu = "devices/system/cpu/cpu0"
        write(
            folder / "sys",
            {
                "class/nvme/nvme1/state": "live\n",
                "devices/system/edac/mc/mc0/ue_count": "0\n",
                "module/nvidia_peermem/refcnt": "1\n",
                "module/mlx5_core/refcnt": "1\n",
                f"{cpu}/cpufreq/scaling_governor": "performance\n",
            },
        )
        write(
            folder / "proc",
            {
                "sys/kernel/osrelease": "6.8.0-60-example\n",
                "sys/kernel/numa_balancing": "0\n",
                "self/mountinfo": mountinfo(self.mount),
            },
        )
        # Minor numbers are not NVML's indices.
        for number, slot in enumerate(self.machine.slots):
            processes.add_gpu_file(folder / "proc", f"{slot}.0", healthy_gpus - 1 - number)
        self.systemd = Systemd(folder)
        self.systemd.units["slurmd.service"] = Unit()
        (folder / "profile.yaml").write_text(PROFILE)
        every = {"interval": interval, "timeout": interval}
        probes = {
            "nvidia": {**every, **self.machine.settings},
            "node": every,
            "rdma": every,
            "network": every,
            "maintenance": {**every, "file": str(folder / "maintenance")},
            "mounts": {**every, "targets": [{"path": str(self.mount), "access": "write"}]},
            "profile": {**every, "file": str(folder / "profile.yaml")},
            "services": {
                **every,
                "expected": ["slurmd.service"],
                "bus": str(folder / BUS),
                "private": str(folder / PRIVATE),
            },
        }
        environment = {**self.machine.environment, **synchronized_clock(folder)}
        self.agent = Node(folder, {"probes": probes}, *self.machine.flags, **environment)

    def __enter__(self) -> FitNode:
        try:
            self.systemd.__enter__()
            self.agent.start()
            wait_until(lambda: self.preflight().returncode == 0, 60, "a fit node")
        except AssertionError:
            print(self.preflight().stdout)
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.agent.end()
        self.systemd.__exit__()
        subprocess.run(["umount", "--lazy", self.mount], check=True)

    def preflight(
        self, *arguments: str, devices: str = "all", **more: str
    ) -> subprocess.CompletedProcess[str]:
        """The command, at this node's agent; '' for no `--devices`."""
        place = ["--url", self.agent.url, "--path.procfs", str(self.folder / "proc")]
        if devices:
            place.append(f"--devices={devices}")
        return run("preflight", *place, *arguments, **more)

    def put(self, tree: str, path: str, text: str) -> None:
        """Write a file of procfs or sysfs."""
        write(self.folder / tree, {path: text})


class Defect(NamedTuple):
    """A defect, and what the line about it contains."""

    name: str
    put: Callable[[FitNode], object]
    line: str


def gpu(name: str, number: int, line: str, **values: object) -> Defect:
    """A defect that NVML shows."""
    return Defect(name, lambda on: on.machine.set(number, **values), line)


def port(name: str, put: Callable[[nics.Machine], object], line: str) -> Defect:
    """A defect of a port."""
    return Defect(name, lambda on: put(on.nics), line)


def tree(name: str, folder: str, path: str, text: str, line: str) -> Defect:
    """A defect that a file shows."""
    return Defect(name, lambda on: on.put(folder, path, text), line)


def mountinfo(mount: Path) -> str:
    """The lines of the root and of a mount in the real /proc/self/mountinfo."""
    lines = Path("/proc/self/mountinfo").read_text().splitlines(keepends=True)
    return "".join(line for line in lines if line.split()[4] in ("/", str(mount)))


def remount_read_only(on: FitNode) -> None:
    """Make the mount read-only."""
    subprocess.run(["mount", "-o", "remount,ro", on.mount], check=True)
    on.put("proc", "self/mountinfo", mountinfo(on.mount))


def unmount(on: FitNode) -> None:
    """Take the mount from the table."""
    on.put("proc", "self/mountinfo", mountinfo(Path("/")))


def unload(on: FitNode) -> None:
    """Unload nvidia_peermem."""
    (on.folder / "sys/module/nvidia_peermem/refcnt").unlink()
    os.rmdir(on.folder / "sys/module/nvidia_peermem")


def stop_service(on: FitNode) -> None:
    """Stop a service that the node must have."""
    on.systemd.units["slurmd.service"].active = "failed"


def stop_bus(on: FitNode) -> None:
    """Let systemd's bus hang: the units are unknown, and all else is fresh."""
    on.systemd.fault = "hang"


def leave(on: FitNode) -> None:
    """Leave a process on GPU 2; its name is what a job's user wrote."""
    minor = len(on.machine.slots) - 1 - 2
    processes.add(on.folder / "proc", 4242, f"/dev/nvidia{minor}", uid=0, name="py) \x1b[31mthon")
    on.machine.set(2, processes=1, memory_used=41 << 30)


# In this order on one node: a defect does not hide the next one.
DEFECTS = (
    gpu("dram", 1, "nvidia 1: 1 uncorrected memory errors (dram)", ecc__1__0__2=1),
    gpu("sram", 2, "nvidia 2: 1 uncorrected memory errors (sram)", ecc__1__0__7=1),
    gpu("row", 3, "nvidia 3: a memory row waits for its remapping", remapped="0 1 1 0"),
    gpu("rows", 4, "nvidia 4: a memory row cannot be remapped", remapped="0 1 1 1"),
    gpu("worn", 5, "nvidia 5: worn out", sram_threshold=1),
    gpu("heat", 6, "nvidia 6: clocks are reduced: hw_thermal", clock_reasons=0x48),
    gpu("brake", 7, "nvidia 7: clocks are reduced: hw_power_brake", clock_reasons=0x88),
    gpu("lanes", 5, "nvidia 5: 8 of 16 PCIe lanes", pcie_width=8),
    gpu("links", 4, "nvidia 4: 17 of 18 NVLinks", nvlink__3=0),
    gpu("ecc", 6, "nvidia.ecc: differs from the profile", ecc_mode=0),
    gpu("mig", 7, "nvidia.mig: differs from the profile", mig_mode=1),
    Defect(
        "process",
        leave,
        "GiB in use before the job starts (process 4242 py) \\x1b[31mthon, user root)",
    ),
    gpu("memory", 3, "nvidia 3: 40 GiB in use before the job starts", memory_used=40 << 30),
    Defect(
        "recovery",
        lambda on: on.machine.set_field(5, gpus.RECOVERY_ACTION, 2),
        "nvidia 5: the driver asks for",
    ),
    Defect("lost", lambda on: on.machine.lose(0, 15), "nvidia 0: lost"),
    port("port", lambda on: on.down("mlx5_0/1"), "port mlx5_0/1: down"),
    port("rate", lambda on: on.up("mlx5_1/1", "200 Gb/sec (2X NDR)"), "port mlx5_1/1: slower"),
    port("adapter", lambda on: on.vanish("mlx5_2"), "port mlx5_2/1: down"),
    port(
        "gid",
        lambda on: on.set("mlx5_5/1", gids__2=nics.NO_GID, gids__3=nics.NO_GID),
        "port mlx5_5/1: no usable RoCE v2 GID",
    ),
    port("roce", lambda on: on.down("mlx5_4/1"), "port mlx5_4/1: down"),
    tree("firmware", "sys", "class/infiniband/mlx5_3/fw_ver", "28.1\n", "rdma.firmware: differs"),
    tree("kernel", "proc", "sys/kernel/osrelease", "6.8.0-59\n", "kernel.release: differs"),
    tree("sysctl", "proc", "sys/kernel/numa_balancing", "1\n", "sysctl.kernel.numa_balancing:"),
    tree(
        *("governor", "sys", "devices/system/cpu/cpu0/cpufreq/scaling_governor", "powersave\n"),
        "cpu.governor: differs from the profile",
    ),
    Defect("module", unload, "module.nvidia_peermem: differs from the profile"),
    Defect("clock", lambda on: (on.folder / "unsynchronized").touch(), "clock: not synchronized"),
    tree("nvme", "sys", "class/nvme/nvme0/state", "dead\n", "NVMe nvme0: failed"),
    tree("dimm", "sys", "devices/system/edac/mc/mc0/ue_count", "2\n", "memory mc0: 2 uncorrected"),
    Defect(
        "maintenance", lambda on: (on.folder / "maintenance").write_text("fan"), "in maintenance"
    ),
    Defect("filer", remount_read_only, "data: cannot be written to"),
    Defect("mount", unmount, "data: not mounted"),
    Defect("service", stop_service, "slurmd.service: not active"),
    Defect("stale", stop_bus, "services units: its last good result is"),
)
