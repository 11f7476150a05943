"""Five real agents on simulated machines: two GPU nodes, an NPU node, a storage node and one that
has nothing to watch.

`gpu-1` also has RDMA ports; the driver of `gpu-2` is there to hang, and `idle-1` to die. In: an
empty folder. Out: agents that `start` starts, and handles to the simulated hardware.
"""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import Any

from testbed import conditions, gpus, nics, npus
from testbed.faultyfs import FaultyFileSystem
from testbed.kmsg import KernelLog
from testbed.node import Node
from testbed.systemd import BUS, Systemd, Unit
from testbed.tmpfs import mount_tmpfs, unmount

TIMING = {"interval": "3s", "timeout": "3s"}
FAULTY_MOUNTS = ("hangs", "stops", "corrupts", "refuses", "unreadable")


class SimulatedCluster:
    """The agents by node name, and what they watch, until `stack` closes."""

    def __init__(self, stack: ExitStack, folder: Path) -> None:
        self.agents: dict[str, Node] = {}
        self._stack = stack
        self._folder = folder
        self._add_gpu_node()
        self._add_hanging_gpu_node()
        self._add_npu_node()
        self._add_storage_node()
        self._add(self._make_folder("idle"), "idle-1", {"node": {}})

    def start(self) -> None:
        """Start the agents."""
        for agent in self.agents.values():
            self._stack.enter_context(agent)

    def _add_gpu_node(self) -> None:
        folder = self._make_folder("gpu")
        self.log = self._stack.enter_context(KernelLog(self._folder))
        self.gpus = gpus.Machine(folder, "H100").start()
        self.sysfs = folder / "sys"
        self.nics = nics.Machine(self.sysfs, mlx5_infiniband=2)
        probes = {
            "nvidia": {**self.gpus.settings, "expected": 8},
            "kernel_log": {"path": str(self.log.path), "interval": "200ms"},
            "rdma": {},
            "node": {},
            "services": {"interval": "1s", "bus": str(folder / BUS), "private": "/none"},
        }
        self.procfs = conditions.healthy(folder)
        self._stack.enter_context(Systemd(folder)).units["kubelet.service"] = Unit()
        self._add(folder, "gpu-1", probes, *self.gpus.flags, **self.gpus.environment)

    def _add_hanging_gpu_node(self) -> None:
        folder = self._make_folder("hung")
        self.hanging_gpus = machine = gpus.Machine(folder, "H100").start()
        probes = {"nvidia": machine.settings}
        self._add(folder, "gpu-2", probes, *machine.flags, **machine.environment)

    def _add_npu_node(self) -> None:
        folder = self._make_folder("npu")
        self.npus = npus.Machine(folder).start()
        # All chips are read within a run, also on a busy machine.
        probes = {"ascend": {**self.npus.settings, "interval": "6s", "timeout": "6s"}}
        self._add(folder, "npu-1", probes, *self.npus.flags)

    def _add_storage_node(self) -> None:
        self.mounts = {
            name: self._stack.enter_context(FaultyFileSystem(self._folder, f"{name}:/x", name))
            for name in FAULTY_MOUNTS
        }
        self.small, self.absent = self._tmpfs("small"), self._tmpfs("absent")
        # As large as the memory file system that it is in.
        self.shared = self._stack.enter_context(FaultyFileSystem(self.small, "filer:/s", "shared"))
        targets = [
            {"path": str(mount.mountpoint), "access": "read" if name == "unreadable" else "write"}
            for name, mount in self.mounts.items()
        ]
        targets += [{"path": str(point)} for point in (self.shared.mountpoint, self.absent)]
        self._add(self._make_folder("storage"), "storage-1", {"mounts": {"targets": targets}})

    def _tmpfs(self, name: str) -> Path:
        point = self._make_folder(name)
        mount_tmpfs(point)
        self._stack.callback(unmount, point)
        return point

    def _add(
        self, folder: Path, name: str, probes: dict[str, Any], *flags: str, **environment: str
    ) -> None:
        config = {"defaults": TIMING, "probes": probes}
        self.agents[name] = Node(folder, config, *flags, NODE_NAME=name, **environment)

    def _make_folder(self, name: str) -> Path:
        folder = self._folder / name
        folder.mkdir()
        return folder
