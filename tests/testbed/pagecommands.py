"""The pages whose commands run on this machine, and a shell for them.

In: a folder. Out: a shell with `nodevitals`, promtool and amtool, in a copy of the files that pages
name, with folders of its own at /etc/nodevitals and /var/lib/nodevitals. It needs private mounts.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from functools import cache
from pathlib import Path

from bench.pagesteps import Step
from testbed.node import ROOT, SOURCES, environment

PAGES = (
    "docs/configuration.md",
    "docs/fabric.md",
    "docs/maintenance.md",
    "docs/own-alert.md",
    "docs/probes.md",
    "docs/rules-check.md",
)
# What a page takes for granted: the folder `site` and the server of docs/first-alert.md.
BEFORE = {
    "docs/own-alert.md": """\
nodevitals init site --cluster test >init.txt || grep '^Warning: ' init.txt
mkdir -p /etc/prometheus
cp -r site/prometheus/. site/alertmanager/. /etc/prometheus/
"""
}
# Steps with these run on the machines of tests/bench/pages.py only.
SERVERS = re.compile(r"\bsystemctl\b|http://localhost:9090")
FOLDERS = ("rules", "alertmanager", "exporter/packaging")
# What a package installs as the configuration.
EXAMPLE = ROOT / "exporter/packaging/nodevitals.example.yaml"
# Changes to them end with the private mounts.
COVERED = ("/etc", "/var/lib")
OWN = ("/etc/nodevitals", "/var/lib/nodevitals")
SCRIPT = f'#!/bin/sh\nexec {sys.executable} -m nodevitals "$@"\n'


@cache  # an overlay takes few others below it
def cover(place: str) -> None:
    """Mount an overlay over a folder: what is written to it is in memory."""
    layer = tempfile.mkdtemp()
    subprocess.run(["mount", "-t", "tmpfs", "tmpfs", layer], check=True)
    options = f"lowerdir={place},upperdir={layer}/upper,workdir={layer}/work"
    for name in ("upper", "work"):
        Path(layer, name).mkdir()
    subprocess.run(["mount", "-t", "overlay", "overlay", "-o", options, place], check=True)


class Shell:
    """Runs the steps of a page, each in a shell of its own."""

    def __init__(self, folder: Path) -> None:
        self.checkout = folder / "checkout"
        for name in FOLDERS:
            shutil.copytree(ROOT / name, self.checkout / name)
        for place in COVERED:
            cover(place)
        for place in OWN:
            shutil.rmtree(place, ignore_errors=True)
            Path(place).mkdir()
        shutil.copy(EXAMPLE, "/etc/nodevitals/nodevitals.yaml")
        programs = folder / "bin"
        programs.mkdir()
        script = programs / "nodevitals"
        script.write_text(SCRIPT)
        script.chmod(0o755)
        tools = ROOT / ".tools/root/usr/bin"
        path = f"{programs}:{tools}:{os.environ['PATH']}"
        self._environment = environment(PATH=path, PYTHONPATH=SOURCES)

    def run(self, step: Step) -> subprocess.CompletedProcess[str]:
        """Run the commands of a step as far as the first that fails; stderr is part of stdout."""
        return subprocess.run(
            ["bash", "-euo", "pipefail", "-c", step.commands],
            cwd=self.checkout,
            env=self._environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=300,
            check=False,
        )
