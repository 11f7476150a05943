"""A simulated node on which `nodevitals init` runs, and Debian's servers with what it writes.

`Initialized(folder)` has eight GPUs; `init()` writes to `made`, `copy()` copies what is for the
servers to where Debian's packages read it.
"""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import Any

import yaml

from testbed import gpus, nics
from testbed.node import Node, run
from testbed.servers import BINARIES, PrometheusProcess, ServerProcess
from testbed.trees import write


class Initialized:
    """A node with GPUs and ports; its root directory is `folder`."""

    def __init__(self, folder: Path, gpu_count: int = 8, **ports: int) -> None:
        self.folder = folder
        self.machine = gpus.Machine(folder, "H100", gpu_count).start()
        self.nics = nics.Machine(folder / "sys", **ports)
        mounts = folder / "proc/self/mountinfo"
        mounts.unlink()
        mounts.symlink_to("/proc/self/mountinfo")
        write(folder, {"etc/group": "root:x:0:\nHwHiAiUser:x:1000:\n"})
        library = str(gpus.library(self.machine.hidden).parent)
        self.variables = {**self.machine.environment, "LD_LIBRARY_PATH": library}
        self.variables["NODE_NAME"] = "gpu-7"
        self.flags = (f"--path.rootfs={folder}", *self.machine.flags)
        self.made = folder / "made"

    def init(self, *more: str) -> subprocess.CompletedProcess[str]:
        """Run init on this node."""
        return run("init", str(self.made), *self.flags, *more, **self.variables)

    def config(self) -> dict[str, Any]:
        """The probes' settings in what init wrote, which check-config accepts."""
        file = str(self.made / "nodevitals.yaml")
        checked = run("check-config", file)
        assert (checked.returncode, checked.stdout) == (0, f"{file}: ok\n"), checked.stderr
        probes: dict[str, Any] = yaml.safe_load(Path(file).read_text())["probes"]
        return {name: section for name, section in probes.items() if section}

    def agent(self, port: int = 0) -> Node:
        """An agent with the configuration that init wrote; only its state is elsewhere."""
        agent = Node(self.folder, {}, *self.flags, **self.variables)
        agent.port = port or agent.port
        agent.url = f"http://127.0.0.1:{agent.port}"
        shipped, here = "#state_directory: /var/lib", f"state_directory: {self.folder}/state"
        text = (self.made / "nodevitals.yaml").read_text()
        assert shipped in text
        agent.config_file.write_text(text.replace(shipped, here))
        return agent

    def copy(self, etc: Path) -> None:
        """Copy the servers' files, as the next steps do."""
        for part in ("prometheus", "alertmanager"):
            shutil.copytree(self.made / part, etc, dirs_exist_ok=True)


class DebianPrometheus(PrometheusProcess):
    """Prometheus with the configuration of a folder like /etc/prometheus."""

    def __init__(self, folder: Path, etc: Path) -> None:
        super().__init__(folder, "prometheus")
        self._etc = etc

    def argv(self) -> list[str]:
        """Return the command line."""
        config = f"--config.file={self._etc / 'prometheus.yml'}"
        return [word if not word.startswith("--config.") else config for word in super().argv()]


class DebianAlertmanager(ServerProcess):
    """Alertmanager with the configuration of a folder like /etc/prometheus."""

    def __init__(self, folder: Path, etc: Path) -> None:
        super().__init__(folder, "alertmanager")
        self._etc = etc

    def argv(self) -> list[str]:
        """Return the command line."""
        return [
            str(BINARIES / "prometheus-alertmanager"),
            f"--config.file={self._etc / 'alertmanager.yml'}",
            f"--storage.path={self.folder / 'data'}",
            f"--web.listen-address=127.0.0.1:{self.port}",
            "--cluster.listen-address=",
        ]
