"""The real pipeline of the demo: three agents, Prometheus, Alertmanager and a webhook.

One agent watches this machine and simulated mounts, one simulated GPUs and RDMA ports, one
simulated NPUs. In: an empty folder. Out: running servers, and handles to the simulated hardware.
"""

from __future__ import annotations

import subprocess
from contextlib import ExitStack
from pathlib import Path

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
# Targets that succeed on every machine; one with a GPU or an RDMA port has more.
HEALTHY_TARGETS = 15


class Pipeline:
    """Agents and servers, running until `stack` closes; files are in `folder`."""

    def __init__(self, stack: ExitStack, folder: Path) -> None:
        self._stack = stack
        self._folder = folder
        subprocess.run(["mount", "-t", "tmpfs", "demo", MOUNTS], check=True)
        self._mount()
        self.this_node = self._this_node()
        self.gpu_node = self._gpu_node()
        self.npu_node = self._npu_node()
        self._start_servers()
        for node in (self.this_node, self.gpu_node, self.npu_node):
            stack.enter_context(node)

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

    def _this_node(self) -> Node:
        points = [self.data.mountpoint, self.models.mountpoint]
        points += [self.scratch, self.datasets]
        targets = [{"path": str(point), "access": "write"} for point in points]
        config = {
            "defaults": TIMING,
            "labels": {"rack": "demo", "pool": "train"},
            "probes": {
                "mounts": {"targets": targets, "timeout": "2s"},
                "node": {"interval": "15s"},
                "nvidia": {},
                "kernel_log": {},
                "network": {},
                "rdma": {},
            },
        }
        return Node(self._make_folder("this"), config, NODE_NAME="this-node")

    def _gpu_node(self) -> Node:
        folder = self._make_folder("gpus")
        self.gpus = Machine(folder, "H100").start()
        self.nics = NicMachine(folder / "sys", mlx5_infiniband=8)
        self.kernel_log = self._stack.enter_context(KernelLog(MOUNTS))
        probes = {
            "nvidia": {**self.gpus.settings, "expected": 8},
            "kernel_log": {"path": str(self.kernel_log.path)},
            "rdma": {},
        }
        return Node(
            folder,
            {"defaults": TIMING, "probes": probes},
            *self.gpus.flags,
            NODE_NAME="gpu-node-1",
            **self.gpus.environment,
        )

    def _npu_node(self) -> Node:
        folder = self._make_folder("npus")
        self.npus = NpuMachine(folder).start()
        ascend = {**self.npus.settings, "expected": 8, "interval": "8s", "timeout": "8s"}
        config = {"defaults": TIMING, "probes": {"ascend": ascend}}
        return Node(folder, config, *self.npus.flags, NODE_NAME="npu-node-1")

    def _make_folder(self, name: str) -> Path:
        folder = self._folder / name
        folder.mkdir(parents=True)
        return folder

    def _start_servers(self) -> None:
        """Start them before the agents: Prometheus scrapes its first target after five seconds."""
        enter = self._stack.enter_context
        self.receiver = enter(Receiver())
        self.alertmanager = enter(Alertmanager(self._folder, self.receiver.url, SPEED))
        targets = {
            "this-node": f"127.0.0.1:{self.this_node.port}",
            "gpu-node-1": f"127.0.0.1:{self.gpu_node.port}",
            "npu-node-1": f"127.0.0.1:{self.npu_node.port}",
        }
        self.prometheus = enter(Prometheus(self._folder, targets, self.alertmanager, SPEED))

    def wait_until_healthy(self) -> None:
        """Wait until Prometheus has a successful run of every target."""
        healthy = "nodevitals_probe_success == 1"
        wait_until(
            lambda: len(self.prometheus.query(healthy)) >= HEALTHY_TARGETS,
            60,
            "every probe healthy in Prometheus",
        )
