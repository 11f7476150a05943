"""Draws the dashboards from the demo's Prometheus: Grafana is in no package of Debian.

In: the address of Prometheus. Out: .demo-pictures/NAME.png, which stay.
"""

from __future__ import annotations

import subprocess
import sys
import time

from demo import ROOT
from demo.report import Progress, shortest

FOLDER = ROOT / ".demo-pictures"
DASHBOARDS: dict[str, list[str]] = {
    "fleet": [],
    "node": ["--variable", "instance=gpu-node-1"],
    "self": [],
}
# The demo is young: what was an hour ago is of another one.
OPTIONS = ["--from", "now-2m", "--scrape-interval", "1s", "--filled"]
SECONDS = 120.0
TICK_SECONDS = 0.5


def draw(prometheus: str) -> None:
    """Draw each dashboard, and print its path."""
    try:
        FOLDER.mkdir(exist_ok=True)
    except OSError as error:
        print(f"cannot write {FOLDER}: {error.strerror}", flush=True)
        return
    for number, (name, options) in enumerate(DASHBOARDS.items(), 1):
        path = FOLDER / f"{name}.png"
        progress = Progress(f"picture {number} of {len(DASHBOARDS)}, {shortest(path)}")
        argv = [sys.executable, "-m", "dashboards.preview", name, "--prometheus", prometheus]
        argv += [*OPTIONS, *options, "--output", str(path)]
        problem = _run(argv, progress)
        progress.end()
        if problem:
            print(f"failed: {problem}", flush=True)


def _run(argv: list[str], progress: Progress) -> str:
    """Run a command, and show how long it has run; why it failed, or ''."""
    with subprocess.Popen(
        argv, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    ) as process:
        deadline = time.monotonic() + SECONDS
        while time.monotonic() < deadline:
            try:
                _, errors = process.communicate(timeout=TICK_SECONDS)
            except subprocess.TimeoutExpired:
                progress.show("drawing")
                continue
            return "" if process.returncode == 0 else " ".join(errors.split())[-300:]
        process.kill()
    return f"not drawn within {SECONDS:g} s"
