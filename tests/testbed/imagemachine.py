"""A node with simulated GPUs, NPUs, NICs, kernel log and a closed mount, for agents in the image.

In: a folder. Out: agents in containers, under tests/data/image-restrictions.yaml or as the chart
renders them, whose volumes are what the chart mounts and what vendors' container runtimes add.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from testbed import charts, gpus, image, nics, npus
from testbed.kmsg import KernelLog
from testbed.node import ROOT
from testbed.tmpfs import mount_tmpfs, unmount


class Machine:
    """Hardware and files of a node: what the pod's volumes are made of."""

    def __init__(self, folder: Path) -> None:
        folder.chmod(0o755)
        self.folder = folder
        self.gpus = gpus.Machine(folder, "H100").start()
        self.npus = npus.Machine(folder).start()
        nics.Machine(folder / "sys", mlx5_infiniband=1, mlx5_roce=1)
        self.log = KernelLog(folder, restricted=True)
        self.closed = folder / "closed"
        (folder / "lock").mkdir(mode=0o700)
        mounts = folder / "proc/self/mountinfo"
        mounts.unlink()
        mounts.symlink_to("/proc/self/mountinfo")
        for tool in ("npu-smi", "hccn_tool"):
            program = folder / "bin" / tool
            text = program.read_text()
            program.write_text(text.replace(text.splitlines()[0], "#!/usr/bin/python3.11 -S"))

    def __enter__(self) -> Machine:
        self.closed.mkdir()
        mount_tmpfs(self.closed)
        self.closed.chmod(0)
        self.log.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        self.log.__exit__()
        unmount(self.closed)

    def sources(self, root: Path) -> dict[str, Path]:
        """Volumes, as the chart and the vendors' container runtimes make them."""
        (library,) = (path.parent for path in (root / "usr/lib").glob("*-linux-gnu/libc.so.6"))
        nvml = f"/{library.relative_to(root)}/libnvidia-ml.so.1"
        shared = {str(path): path for path in (self.folder, ROOT / "tests")}
        return {
            "root": Path("/"),
            "lock": self.folder / "lock",
            "kmsg": self.log.path,
            "/usr/local/bin/npu-smi": self.folder / "bin/npu-smi",
            "/usr/local/bin/hccn_tool": self.folder / "bin/hccn_tool",
            nvml: gpus.library(),
            **shared,
        }

    def config(self) -> dict[str, Any]:
        """Every probe that this machine has something for."""
        targets = [{"path": str(self.closed), "access": "read"}]
        return {
            "probes": {
                "nvidia": {"enabled": True, "expected": 8, "interval": "2s"},
                "ascend": {"enabled": True, "expected": 8, "interval": "5s"},
                "rdma": {"enabled": True, "interval": "1s"},
                "network": {"enabled": True, "interval": "1s"},
                "kernel_log": {"enabled": True, "interval": "1s"},
                "mounts": {"interval": "5s", "targets": targets},
                "peers": {"interval": "1s", "targets": [{"host": "localhost", "port": 1}]},
                "node": {"interval": "1s"},
            }
        }

    @property
    def flags(self) -> tuple[str, ...]:
        """Not below /host: another user does not get through the folders of pytest."""
        return (f"--path.procfs={self.folder}/proc", f"--path.sysfs={self.folder}/sys")

    def pod(self, root: Path, *without: str) -> image.Pod:
        """An agent on this machine, in a folder of its own."""
        folder = self.folder / "-".join(("pod", *without)).replace("/", "_")
        folder.mkdir()
        flags = ("--path.rootfs=/host", *self.flags)
        sources = self.sources(root)
        environment = self.gpus.environment
        return image.Pod(folder, root, self.config(), sources, without, flags, **environment)

    def chart_pod(self, root: Path, entry: str) -> image.ChartPod:
        """The agent of one DaemonSet of the chart on this machine, with a vendor's runtime."""
        values = charts.values_of(ROOT / "tests/data/chart/default.yaml")
        objects = charts.render({**values, "nodes": {entry: {"enabled": True}}})
        (made,) = (
            one
            for one in charts.of_kind(objects, "DaemonSet")
            if one["metadata"]["name"].endswith(f"-{entry}")
        )
        added = {name: path for name, path in self.sources(root).items() if name[0] == "/"}
        environment = self.gpus.environment
        return image.ChartPod(
            self.folder, root, made, self.config(), added, self.flags, **environment
        )
