"""Writes the lock files of the images: Debian packages, Python packages, tools of the build.

In: packages.txt, pyproject.toml of agent and hub, the Debian mirror of this machine's apt, PyPI.
Out: debian.lock (SHA-256 and path of each package, for both architectures), python.lock of
the agent, hub.lock of the hub, and build.lock (pip's requirements with the hashes of all files of
each version). It needs Debian 12 and pip-tools: `make lock`.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from urllib.parse import unquote

HERE = Path(__file__).parent
TOP = HERE.parents[2]
PYTHON = {"agent": "python.lock", "hub": "hub.lock"}
ARCHITECTURES = ("amd64", "arm64")
PRINTED = re.compile(
    r"^'\S*?/(debian(?:-security)?/pool/\S+)' \S+ \d+ SHA256:(\w{64})$", re.MULTILINE
)


def names(image: str = "agent") -> list[str]:
    """The Debian packages of packages.txt that belong in an image."""
    text = (HERE / "packages.txt").read_text()
    if image != "agent":
        text = text.partition("# Only for the agent")[0]
    return [line for line in text.splitlines() if line and not line.startswith("#")]


def resolve(architecture: str, packages: Sequence[str]) -> dict[str, str]:
    """SHA-256 by path of the newest versions that apt's signed indexes have."""
    with tempfile.TemporaryDirectory() as state:
        apt = [
            *("apt-get", "-qq", "-o", f"Dir::State={state}", "-o", f"Dir::Cache={state}"),
            *("-o", "Dir::State::status=/dev/null", "-o", "APT::Sandbox::User=root"),
            *("-o", f"APT::Architecture={architecture}"),
            *("-o", f"APT::Architectures={architecture}"),
            *("-o", "Acquire::ForceHash=sha256"),
        ]
        subprocess.run([*apt, "update"], check=True)
        wanted = [*apt, "download", "--print-uris", *packages]
        printed = subprocess.run(wanted, check=True, capture_output=True, text=True).stdout
    found = {unquote(path): digest for path, digest in PRINTED.findall(printed)}
    if len(found) != len(packages):
        sys.exit(f"lock: apt named {len(found)} of {len(packages)} packages:\n{printed}")
    return found


def write_debian(path: Path) -> None:
    """Write the lock of the Debian packages."""
    lines = [f"# snapshot {time.strftime('%Y%m%dT%H%M%SZ', time.gmtime())}"]
    for architecture in ARCHITECTURES:
        found = resolve(architecture, names())
        lines += [f"{digest}  {file}" for file, digest in sorted(found.items())]
    path.write_text("\n".join(dict.fromkeys(lines)) + "\n")


def write_python(path: Path, *arguments: str) -> None:
    """Write the lock of Python packages with pip-compile."""
    compile_ = [sys.executable, "-m", "piptools", "compile", "--quiet", "--upgrade"]
    options = [
        "--generate-hashes",
        "--strip-extras",
        "--no-emit-options",
        "--no-header",
        "--no-annotate",
    ]
    with tempfile.TemporaryDirectory() as cache:
        written = [f"--cache-dir={cache}", f"--output-file={path}"]
        subprocess.run([*compile_, *options, *written, *arguments], check=True)


def write_hub(path: Path) -> None:
    """Write the lock of what the hub needs, without the agent's wheel, which no index has."""
    with tempfile.TemporaryDirectory() as folder:
        build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", folder]
        subprocess.run(build, cwd=TOP, check=True)
        own = (f"--find-links={folder}", "--unsafe-package=nodevitals")
        write_python(path, *own, str(TOP / "hub/pyproject.toml"))
    lines = path.read_text().splitlines(keepends=True)
    path.write_text("".join(line for line in lines if not line.startswith("#")).rstrip() + "\n")


if __name__ == "__main__":
    write_debian(HERE / "debian.lock")
    project = str(TOP / "pyproject.toml")
    write_python(HERE / PYTHON["agent"], "--extra=pods", project)
    write_hub(HERE / PYTHON["hub"])
    write_python(HERE / "build.lock", "--only-build-deps", "--build-deps-for=wheel", project)
