"""The root file system of the image, built from what tools/setup fetched, and agents in it.

`build_wheel` and `build_root` call the scripts that the Containerfile calls. `Pod` is a `Node`
whose agent runs in a container (`testbed.container`), under the restrictions of
tests/data/image-restrictions.yaml.
"""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from collections.abc import Collection, Iterator
from copy import deepcopy
from pathlib import Path
from typing import Any

import psutil
import yaml

from testbed import charts
from testbed.container import Container
from testbed.node import ROOT, Node

SCRIPTS = ROOT / "exporter/packaging/image"
# TOOLS_IMAGE: for a folder that fetch.py filled by hand.
FETCHED = Path(os.environ.get("TOOLS_IMAGE", ROOT / ".tools/image"))
RESTRICTIONS = yaml.safe_load((ROOT / "tests/data/image-restrictions.yaml").read_text())
ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}
CONFIG = "--config.file=/etc/nodevitals/nodevitals.yaml"
NATIVE = ARCHITECTURES[platform.machine()]


def build_wheel(folder: Path, project: str = "nodevitals") -> Path:
    """Build a wheel of this checkout, that of the agent or nodevitals_hub; it and its folder are
    new.
    """
    source = {"nodevitals": ROOT, "nodevitals_hub": ROOT / "hub"}[project]
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    subprocess.run(command, cwd=source, check=True, capture_output=True)
    (wheel,) = folder.glob(f"{project}-*.whl")
    return wheel


def build_root(architecture: str, root: Path, *wheels: Path, image: str = "agent") -> Path:
    """Make the root file system."""
    fetched = FETCHED / architecture
    assert fetched.is_dir(), f"there is no {fetched}: tools/setup"
    script = [sys.executable, str(SCRIPTS / "build.py"), f"--image={image}"]
    subprocess.run([*script, architecture, *map(str, (fetched, root, *wheels))], check=True)
    return root


def files(root: Path) -> Iterator[Path]:
    """Everything below a folder, links not followed."""
    for folder, names, others in os.walk(root):
        yield from (Path(folder, name) for name in (*names, *others))


def is_elf(file: Path) -> bool:
    """Whether it is a program, a library or a module of Python."""
    if file.is_symlink() or not file.is_file():
        return False
    with file.open("rb") as content:
        return content.read(4) == b"\x7fELF"


def container(
    root: Path, sources: dict[str, Path], without: Collection[str] = (), **more: Any
) -> Container:
    """The container of the DaemonSet, without some rights. `sources` is what is mounted, by the
    name of the volume, or by its path in the container.
    """
    profile = "plain" if "user" in without else "hardware"
    security = deepcopy(RESTRICTIONS["securityContext"][profile])
    added = security["capabilities"].get("add", [])
    security["capabilities"]["add"] = [name for name in added if name not in without]
    mounts = [
        {"target": name, **RESTRICTIONS["volumes"].get(name, {}), "source": str(source)}
        for name, source in sources.items()
        if name not in without
    ]
    return Container(root, security, mounts, "hostPID" not in without, **more)


def from_chart(
    root: Path, daemonset: charts.Object, folder: Path, sources: dict[str, Path], **more: str
) -> Container:
    """The container of a DaemonSet or a Deployment that the chart rendered. Its hostPath volumes
    are those of this machine, other than the state; `sources` is what a vendor's runtime adds.
    """
    pod, one = charts.pod(daemonset), charts.container(daemonset)
    security = {**pod["securityContext"], **one["securityContext"]}
    paths = {volume["name"]: volume.get("hostPath", {}).get("path") for volume in pod["volumes"]}
    group = security.pop("fsGroup", None)
    if security.pop("fsGroupChangePolicy", None):
        security["supplementalGroups"] = [group]
    mounts = []
    for mount in one["volumeMounts"]:
        path = paths[mount["name"]]
        if path is None or not Path(path).is_dir() or mount["name"] == "state":
            path = str(folder / mount["name"])
            os.makedirs(path, exist_ok=True)
            if group is None:
                os.chown(path, security["runAsUser"], security["runAsGroup"])
            else:  # as the kubelet does with a volume of root
                os.chown(path, 0, group)
                os.chmod(path, 0o2775)
        mounts.append({"source": path, "target": mount["mountPath"], **mount})
    mounts += [{"source": str(path), "target": target} for target, path in sources.items()]
    environment = {e["name"]: e["value"] for e in one.get("env", ()) if "value" in e}
    return Container(root, security, mounts, pod.get("hostPID", False), **environment, **more)


class Pod(Node):
    """An agent in a container; the configuration's folder and the state are volumes."""

    def __init__(
        self,
        folder: Path,
        root: Path,
        config: dict[str, Any],
        sources: dict[str, Path],
        without: Collection[str] = (),
        flags: tuple[str, ...] = (),
        **more: str,
    ) -> None:
        self.folder = folder / "configuration"
        self.folder.mkdir()
        state = folder / "state"
        state.mkdir()
        os.chown(state, *(2 * [65532 if "user" in without else 0]))
        volumes = {"configuration": self.folder, "state": state, **sources}
        self._container = container(root, volumes, without, NODE_NAME="node-1", **more)
        super().__init__(self.folder, {"state_directory": "/var/lib/nodevitals", **config}, *flags)
        self.log_file = folder / "nodevitals.log"

    def command(self) -> list[str]:
        """The command of the DaemonSet."""
        listen = f"--web.listen-address=127.0.0.1:{self.port}"
        return [*self._container.command, "nodevitals", "serve", CONFIG, *self.flags, listen]

    def probe(self, name: str) -> subprocess.CompletedProcess[str]:
        """Run a probe once in such a container."""
        return self._container.run("nodevitals", "probe", name, "--raw", CONFIG, *self.flags)

    def __enter__(self) -> Pod:
        """Start the agent."""
        self.start()
        return self

    def agent(self) -> psutil.Process:
        """The agent's process."""
        process = psutil.Process(self.process.pid)
        children = process.children()
        return process if process.name() != "unshare" else children[0]

    def end(self) -> None:
        """Stop the agent as the kubelet does; `unshare` passes no signal on."""
        if self.process.poll() is None:
            self.agent().terminate()
            self.process.wait(120)


class ChartPod(Pod):
    """The agent of a DaemonSet that the chart rendered, with another configuration."""

    def __init__(
        self,
        folder: Path,
        root: Path,
        daemonset: charts.Object,
        config: dict[str, Any],
        sources: dict[str, Path],
        flags: tuple[str, ...],
        **more: str,
    ) -> None:
        self.folder = folder / "config"
        self.folder.mkdir()
        self._arguments = charts.container(daemonset)
        Node.__init__(
            self, self.folder, {"state_directory": "/var/lib/nodevitals", **config}, *flags
        )
        self._container = from_chart(root, daemonset, folder, sources, NODE_NAME="node-1", **more)
        self.log_file = folder / "nodevitals.log"

    def command(self) -> list[str]:
        """The command of the DaemonSet; of a flag that is given twice the last one is used."""
        listen = f"--web.listen-address=127.0.0.1:{self.port}"
        own = [*self._arguments["command"], *self._arguments["args"]]
        return [*self._container.command, *own, *self.flags, listen]
