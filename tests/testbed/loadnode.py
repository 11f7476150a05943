"""A node to put under load: its folders of proc, sys and dev, with GPUs or NPUs and RDMA ports."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

from testbed import perftools, programs, selfchecktools

DEVICE = "mlx5_0"


class LoadNode:
    """Folders of a node, and programs for its PATH."""

    def __init__(self, folder: Path, gpus: int = 2, npus: int = 0) -> None:
        self.folder = folder
        self.bin = programs.install(folder / "bin", "selfchecktools", selfchecktools.PROGRAMS)
        programs.install(self.bin, "perftools", perftools.PROGRAMS)
        for number in range(gpus):
            (folder / f"proc/driver/nvidia/gpus/0000:{16 + number:02x}:00.0").mkdir(parents=True)
        self._write("proc/2/stat", "2 (kthreadd) S 0 0 0 0\n")
        (folder / "proc/2/fd").mkdir()
        self._write("proc/meminfo", "MemTotal: 99999999 kB\nMemAvailable:   88888888 kB\n")
        (folder / "dev").mkdir()
        for number in range(npus):
            (folder / f"dev/davinci{number}").touch()
        port = f"sys/class/infiniband/{DEVICE}/ports/1"
        self._write(f"{port}/state", "4: ACTIVE\n")
        self._write(f"{port}/link_layer", "Ethernet\n")
        self._write("sys/class/net/eth0/operstate", "up\n")
        self._write(f"{port}/rate", "400 Gb/sec (4X NDR)\n")
        self._write(f"{port}/counters/port_xmit_data", "1000\n")
        self._write(f"{port}/counters/port_rcv_data", "1000\n")
        self._write(f"{port}/gids/3", "0000:0000:0000:0000:0000:ffff:c000:0207\n")
        self._write(f"{port}/gid_attrs/types/3", "RoCE v2\n")
        self._write(f"{port}/gid_attrs/ndevs/3", "eth0\n")

    @property
    def options(self) -> list[str]:
        """The options of a command."""
        paths = {"rootfs": "", "procfs": "proc", "sysfs": "sys"}
        return [f"--path.{name}={self.folder / path}" for name, path in paths.items()]

    @property
    def environment(self) -> dict[str, str]:
        """Variables of a command: PATH, and what the programs read."""
        return {
            "PATH": f"{self.bin}:{os.environ['PATH']}",
            "FAKE_DEVICE": f"{DEVICE}:1:3",
            "FAKE_FOLDER": str(self.folder),
        }

    def configure(self, **settings: object) -> str:
        """Write a configuration. Returns the option that names it."""
        file = self.folder / "nodevitals.yaml"
        file.write_text(json.dumps({"probes": {"selfcheck": settings}}))
        return f"--config.file={file}"

    def start_job(self, pid: int = 4242, parent: int = 4000, name: str = "train") -> None:
        """A process that has the first GPU open."""
        made = self.folder / f"proc.{pid}"
        (made / "fd").mkdir(parents=True)
        (made / "stat").write_text(f"{pid} ({name}) S {parent} {pid} {pid} 0\n")
        (made / "fd/7").symlink_to("/dev/nvidia0")
        made.rename(self.folder / f"proc/{pid}")

    def end_job(self, pid: int = 4242) -> None:
        """That process ends."""
        shutil.rmtree(self.folder / f"proc/{pid}")

    def _write(self, name: str, text: str) -> None:
        file = self.folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
