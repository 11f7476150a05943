"""The real pipeline of the demo: three agents, Prometheus, Alertmanager and a webhook.

One agent watches simulated mounts, one simulated GPUs and RDMA ports, one simulated NPUs. No agent
watches this machine: its own problems are not those of the demo. In: an empty folder. Out: running
servers, and handles to the simulated hardware.
"""

from __future__ import annotations

import subprocess
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from demo import ROOT
from nodevitals import probes
from testbed.faultyfs import FaultyFileSystem
from testbed.gpus import Machine
from testbed.kmsg import KernelLog
from testbed.nics import Machine as NicMachine
from testbed.node import Node, wait_until
from testbed.npus import Machine as NpuMachine
from testbed.servers import Alertmanager, Prometheus
from testbed.tmpfs import mount_tmpfs, unmount
from testbed.webhook import Receiver

# The waits of the shipped rules and routes are minutes; the demo divides them by this.
SPEED = 180.0
TIMING = {"interval": "3s", "timeout": "3s"}
MOUNTS = Path("/mnt")
# Four mounts, GPUs, ports and the kernel log, NPUs, and each agent's history.
HEALTHY_TARGETS = 11


class Pipeline:
    """Agents and servers, running until `stack` closes; files are in `folder`."""

    def __init__(self, stack: ExitStack, folder: Path, speed: float = SPEED) -> None:
        self._stack = stack
        self._folder = folder
        self._speed = speed
        subprocess.run(["mount", "-t", "tmpfs", "demo", MOUNTS], check=True)
        self._mount()
        self.storage_node = self._storage_node()
        self.gpu_node = self._gpu_node()
        self.npu_node = self._npu_node()
        self.nodes = (self.storage_node, self.gpu_node, self.npu_node)
        for node in self.nodes:
            stack.enter_context(node)
        for node in self.nodes:
            wait_until(lambda node=node: node.get("/readyz").ok, 30, f"results of {node.url}")  # type: ignore[misc]
        self._start_servers()

    def _mount(self) -> None:
        """Mount two simulated filers and three small memory file systems."""
        filer = FaultyFileSystem(MOUNTS, "filer-1:/data", "data")
        self.data = self._stack.enter_context(filer)
        filer = FaultyFileSystem(MOUNTS, "filer-2:/models", "models")
        self.models = self._stack.enter_context(filer)
        self.scratch = self._tmpfs("scratch")
        self.datasets = self._tmpfs("datasets")

    def _tmpfs(self, name: str) -> Path:
        point = MOUNTS / name
        point.mkdir()
        mount_tmpfs(point)
        self._stack.callback(unmount, point)
        return point

    def _node(
        self, name: str, folder: Path, enabled: dict[str, Any], *flags: str, **more: str
    ) -> Node:
        """An agent with these probes only: the others would watch this machine."""
        off = {one: {"enabled": False} for one in probes.registered()}
        labels = {"rack": "demo", "pool": "train"}
        config = {"defaults": TIMING, "labels": labels, "probes": {**off, **enabled}}
        variables = {"NODE_NAME": name, "PYTHONPATH": f"{ROOT / 'exporter'}:{ROOT / 'hub'}", **more}
        return Node(folder, config, *flags, **variables)

    def _storage_node(self) -> Node:
        points = [self.data.mountpoint, self.models.mountpoint]
        points += [self.scratch, self.datasets]
        targets = [{"path": str(point), "access": "write"} for point in points]
        mounts = {"targets": targets, "timeout": "2s"}
        return self._node("storage-node-1", self._make_folder("storage"), {"mounts": mounts})

    def _gpu_node(self) -> Node:
        folder = self._make_folder("gpus")
        self.gpus = Machine(folder, "H100").start()
        self.nics = NicMachine(folder / "sys", mlx5_infiniband=8)
        self.kernel_log = self._stack.enter_context(KernelLog(MOUNTS))
        enabled = {
            "nvidia": {**self.gpus.settings, "expected": 8},
            "kernel_log": {"path": str(self.kernel_log.path)},
            "rdma": {},
        }
        flags, more = self.gpus.flags, self.gpus.environment
        return self._node("gpu-node-1", folder, enabled, *flags, **more)

    def _npu_node(self) -> Node:
        folder = self._make_folder("npus")
        self.npus = NpuMachine(folder).start()
        ascend = {**self.npus.settings, "expected": 8, "interval": "8s", "timeout": "8s"}
        return self._node("npu-node-1", folder, {"ascend": ascend}, *self.npus.flags)

    def _make_folder(self, name: str) -> Path:
        folder = self._folder / name
        folder.mkdir(parents=True)
        return folder

    def _start_servers(self) -> None:
        """Start them after the agents: the waits are so short that a device without a first result
        would be an alert.
        """
        enter = self._stack.enter_context
        self.receiver = enter(Receiver())
        self.alertmanager = enter(Alertmanager(self._folder, self.receiver.url, self._speed))
        targets = {
            "storage-node-1": f"127.0.0.1:{self.storage_node.port}",
            "gpu-node-1": f"127.0.0.1:{self.gpu_node.port}",
            "npu-node-1": f"127.0.0.1:{self.npu_node.port}",
        }
        self.prometheus = enter(Prometheus(self._folder, targets, self.alertmanager, self._speed))
