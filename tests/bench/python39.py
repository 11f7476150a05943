"""The agent on Python 3.9, the lowest version: Debian 11's, unpacked and not installed.

With the newest wheels for it, every module is imported, the integration tests run with an agent of
3.9, and start-up and memory stand beside those of this machine's Python with its libraries.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from pathlib import Path
from statistics import median

from bench.measure import pss_bytes, table
from testbed.node import PLUGINS, ROOT, Node

KEYRING = "/usr/share/keyrings/debian-archive-keyring.gpg"
SUITES = (
    ("http://deb.debian.org/debian", "bullseye"),
    ("http://deb.debian.org/debian-security", "bullseye-security"),
)
PACKAGES = (
    *("python3.9-minimal", "libpython3.9-minimal", "libpython3.9-stdlib", "python3-distutils"),
    *("python3-lib2to3", "libssl1.1", "libffi7", "libsqlite3-0", "libmpdec3"),
)
LIBRARIES = "root/usr/lib/x86_64-linux-gnu"
SITE = "root/usr/local/lib/python3.9/dist-packages"
# They test what is built here, for this machine's Python.
OTHER_PYTHON = {"test_image.py", "test_packages.py", "test_wheel.py", "test_chart_mounts.py"}
STARTS = 15
IMPORT_ALL = """
import importlib, pkgutil, sys, typing, msgspec, nodevitals
modules = structs = 0
later = "nodevitals.checks.launchers.kubernetes_"  # lightkube has no release for it
for found in pkgutil.walk_packages(nodevitals.__path__, "nodevitals."):
    if found.name.endswith("__main__") or found.name.startswith(later):
        continue
    module = importlib.import_module(found.name)
    modules += 1
    for kind in vars(module).values():
        own = isinstance(kind, type) and kind.__module__ == found.name
        if own and issubclass(kind, msgspec.Struct):
            typing.get_type_hints(kind, include_extras=True)
            msgspec.structs.fields(kind)
            structs += 1
print(f"Python {sys.version.split()[0]} imports {modules} modules; {structs} Structs evaluate.")
"""


def unpack(folder: Path) -> None:
    """Download Debian 11's packages and unpack them into a folder."""
    (folder / "apt/lists/partial").mkdir(parents=True)
    (folder / "apt/cache/archives/partial").mkdir(parents=True)
    (folder / "apt/status").touch()
    (folder / "debs").mkdir()
    lines = (f"deb [signed-by={KEYRING}] {url} {suite} main\n" for url, suite in SUITES)
    (folder / "sources.list").write_text("".join(lines))
    settings = {
        "Dir::Etc::SourceList": folder / "sources.list",
        "Dir::Etc::SourceParts": "/dev/null",
        "Dir::State": folder / "apt",
        "Dir::State::status": folder / "apt/status",
        "Dir::Cache": folder / "apt/cache",
        "APT::Sandbox::User": "root",
    }
    options = [word for name, value in settings.items() for word in ("-o", f"{name}={value}")]
    subprocess.run(["apt-get", "-qq", *options, "update"], check=True)
    download = ["apt-get", "-qq", *options, "download", *PACKAGES]
    subprocess.run(download, cwd=folder / "debs", check=True, stderr=subprocess.DEVNULL)
    for package in (folder / "debs").iterdir():
        subprocess.run(["dpkg-deb", "-x", package, folder / "root"], check=True)


def interpreter(folder: Path) -> Path:
    """Return a program that runs Python 3.9 with the dependencies of the agent."""
    unpack(folder)
    python = folder / "python3.9"
    # The libraries are not where the loader looks for them.
    python.write_text(
        f'#!/bin/sh\nexport LD_LIBRARY_PATH="{folder / LIBRARIES}"\n'
        f'exec "{folder / "root/usr/bin/python3.9"}" "$@"\n'
    )
    python.chmod(0o755)
    project = (ROOT / "pyproject.toml").read_text()
    lists = re.findall(
        r"^(?:dependencies|pods|kubernetes) = \[(.*?)\]", project, re.MULTILINE | re.DOTALL
    )
    wanted = re.findall(r'"([^"]+)"', " ".join(lists))
    [pip] = Path(sys.executable).parents[1].glob("lib/python*/site-packages/pip")
    options = ["--quiet", "--disable-pip-version-check", "--no-warn-conflicts", "--no-compile"]
    options += ["--root-user-action=ignore", "--only-binary=:all:", "--target", str(folder / SITE)]
    subprocess.run([python, pip, "install", *options, *wanted], check=True)
    return python


def start_seconds(python: str, environment: dict[str, str]) -> float:
    """Return the CPU time that the command takes to print its version."""
    before = os.times()
    command = [python, "-m", "nodevitals", "--version"]
    subprocess.run(command, env=environment, check=True, stdout=subprocess.DEVNULL)
    after = os.times()
    return sum(after[2:4]) - sum(before[2:4])


def measure(folder: Path, python: str, environment: dict[str, str]) -> list[str]:
    """Return the version, the time of a start, and the memory of an agent, of an interpreter."""
    folder.mkdir()
    start_seconds(python, environment)
    took = median(start_seconds(python, environment) for _ in range(STARTS))
    node = Node(folder, {"probes": {"mounts": {"targets": [{"path": "/"}]}}})
    node.environment = environment
    node.command = lambda: [python, *Node.command(node)[1:]]  # type: ignore[method-assign]
    with node:
        time.sleep(10)
        found = node.samples()
        [version] = [dict(labels) for name, labels in found if name == "nodevitals_build_info"]
        memory = median(pss_bytes(node.process.pid) for _ in range(5))
    return [version["python_version"], f"{took * 1000:.0f} ms", f"{memory / 2**20:.1f} MiB"]


def main(folder: Path) -> None:
    """Import, run the tests, print the table."""
    python = str(interpreter(folder))
    package = {**os.environ, "PYTHONPATH": f"{ROOT / 'exporter'}:{PLUGINS}"}
    subprocess.run([python, "-c", IMPORT_ALL], env=package, check=True)
    rows = [
        measure(folder / "lowest", python, package),
        measure(folder / "here", sys.executable, package),
    ]
    print()
    table(["Python", "CPU time of nodevitals --version", "PSS of the agent"], rows)
    files = sorted(ROOT.glob("tests/integration/test_*.py"))
    tested = [str(path) for path in files if path.name not in OTHER_PYTHON]
    workers = f"3*popen//python={ROOT / 'tools/test-python'}"
    options = ["-q", "--dist=loadfile", "--no-loadscope-reorder", f"--tx={workers}"]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *options, *tested],
        cwd=ROOT,
        env={**os.environ, "NODE_PYTHON": python},
        check=False,
    )
    assert done.returncode == 0, "tests fail with an agent of Python 3.9"
