"""The pages whose commands run on this machine, and a shell for them.

In: a folder. Out: a shell with `nodevitals`, promtool and amtool, in a copy of the files that pages
name, with folders of its own at /etc/nodevitals and /var/lib/nodevitals. It needs private mounts.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

from bench.pagesteps import Step
from testbed.node import ROOT, environment

PAGES = ("docs/maintenance.md", "docs/rules-check.md", "docs/configuration.md")
FOLDERS = ("rules", "alertmanager", "exporter/packaging")
OWN = ("/etc/nodevitals", "/var/lib/nodevitals")
SCRIPT = f'#!/bin/sh\nexec {sys.executable} -m nodevitals "$@"\n'


class Shell:
    """Runs the steps of a page, each in a shell of its own."""

    def __init__(self, folder: Path) -> None:
        self.checkout = folder / "checkout"
        for name in FOLDERS:
            shutil.copytree(ROOT / name, self.checkout / name)
        for place in OWN:
            Path(place).mkdir(parents=True, exist_ok=True)
            subprocess.run(["mount", "-t", "tmpfs", "tmpfs", place], check=True)
        programs = folder / "bin"
        programs.mkdir()
        script = programs / "nodevitals"
        script.write_text(SCRIPT)
        script.chmod(0o755)
        tools = ROOT / ".tools/root/usr/bin"
        path = f"{programs}:{tools}:{os.environ['PATH']}"
        self._environment = environment(PATH=path, PYTHONPATH=str(ROOT / "exporter"))

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
            timeout=60,
            check=False,
        )
