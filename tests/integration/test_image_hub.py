"""The hub's image: its root file system, and the hub in it as the chart's Deployment runs it."""

from __future__ import annotations

import base64
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
import requests

from testbed import image
from testbed.charts import Object, container, of_kind, render
from testbed.node import free_port, wait_until

pytestmark = pytest.mark.proof("images")

LIMIT = 145_000_000
SCRIPT = """
import importlib.metadata as m, re
for line in (*m.requires("nodevitals"), *m.requires("nodevitals-hub")):
    if "extra ==" not in line and not line.startswith("nodevitals=="):
        print(re.match(r"[A-Za-z0-9_-]+", line)[0])
import nodevitals_hub.start
import nodevitals.checks.launchers.kubernetes_launcher
from nodevitals_hub.web.texts.translations import catalogue
assert catalogue("zh").gettext("Alerts") != "Alerts"
"""


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("image")
    wheels = [image.build_wheel(folder / name, name) for name in ("nodevitals", "nodevitals_hub")]
    return image.build_root(image.NATIVE, folder / "root", *wheels, image="hub")


def test_it_has_what_the_hub_imports_and_no_tool_of_the_agent(
    root: Path, record_property: Any
) -> None:
    done = image.container(root, {}).run("python3.11", "-c", SCRIPT)
    assert done.returncode == 0, done.stderr
    locked = (image.SCRIPTS / "hub.lock").read_text().lower().replace("_", "-")
    names = done.stdout.lower().split()
    assert {"litestar", "hypercorn", "lightkube", "msgspec", "bcrypt"} <= set(names)
    assert [name for name in names if not re.search(rf"^{name}==", locked, re.MULTILINE)] == []
    content = sum(file.lstat().st_size for file in image.files(root) if not file.is_symlink())
    record_property("bytes", content)
    assert content < LIMIT
    programs = {file.name for file in (root / "usr/bin").iterdir()}
    assert {"nodevitals", "python3.11", "sh"} <= programs
    assert not {"ib_write_bw", "iperf3"} & programs


def test_every_library_is_there(root: Path) -> None:
    programs = [str(file) for file in image.files(root) if image.is_elf(file)]
    command = ["readelf", "--dynamic", "--wide", *programs]
    text = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    needed = set(re.findall(r"\(NEEDED\).*\[(.+)\]", text))
    assert {"libc.so.6", "libssl.so.3", "libsqlite3.so.0"} <= needed
    assert needed <= {path.name for path in image.files(root)}


class Pod:
    """The hub of the chart in its container; volumes are folders."""

    def __init__(self, root: Path, folder: Path, objects: list[Object]) -> None:
        self.folder = folder
        [deployment] = of_kind(objects, "Deployment")
        made = image.from_chart(root, deployment, folder, {})
        self._fill(objects)
        one = container(deployment)
        self.log = folder / "hub.log"
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                [*made.command, *one["command"], *one["args"]], stdout=log, stderr=log
            )

    def _fill(self, objects: list[Object]) -> None:
        """The files of the ConfigMap and of the Secrets, as Kubernetes mounts them."""
        secrets = {one["metadata"]["name"]: one["data"] for one in of_kind(objects, "Secret")}
        [text] = [
            one["data"]["hub.yaml"]
            for one in of_kind(objects, "ConfigMap")
            if "hub.yaml" in one["data"]
        ]
        (self.folder / "config/hub.yaml").write_text(text)
        for volume, name in (
            ("fabric", "nodevitals-hub-fabric"),
            ("token", "nodevitals-hub-token"),
        ):
            for file, data in secrets[name].items():
                path = self.folder / volume / file
                path.write_bytes(base64.b64decode(data))
                path.chmod(0o440)

    def end(self) -> None:
        """As the kubelet does; `unshare` passes no signal on."""
        if self.process.poll() is None:
            for child in psutil.Process(self.process.pid).children():
                child.terminate()
            self.process.wait(120)


@pytest.fixture
def pod(root: Path, tmp_path: Path) -> Iterator[tuple[Pod, str]]:
    tmp_path.chmod(0o755)
    port = free_port()
    objects = render(
        {
            "fabric": {"enabled": True, "peers": ["gpu-1", "gpu-2", "gpu-3"]},
            "nodes": {"nvidia": {"fabric": True}},
            "hub": {"enabled": True, "port": port, "config": {"cluster": "atlas"}},
        }
    )
    made = Pod(root, tmp_path, objects)
    try:
        yield made, f"http://127.0.0.1:{port}"
    finally:
        made.end()


def answers(url: str) -> bool:
    try:
        return requests.get(url, timeout=60).status_code == 200
    except requests.ConnectionError:
        return False


def test_the_hub_of_the_chart_starts_serves_and_ends(pod: tuple[Pod, str]) -> None:
    """As a user without rights, whose volume belongs to root and to its group."""
    made, url = pod
    wait_until(lambda: answers(f"{url}/healthz"), 30, "the hub answers")
    assert "atlas" in requests.get(url, timeout=60).text
    nodes = requests.get(f"{url}/api/v1/nodes", timeout=60).text
    assert all(name in nodes for name in ("gpu-1", "gpu-2", "gpu-3"))
    assert "nodevitals_hub_build_info" in requests.get(f"{url}/metrics", timeout=60).text
    made.end()
    assert made.process.returncode == 0, made.log.read_text()
    assert (made.folder / "state/hub.db").stat().st_uid == 65532
