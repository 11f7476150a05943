"""Draws the dashboards from the demo's Prometheus: Grafana is in no package of Debian.

In: the address of Prometheus. Out: .demo-pictures/NAME.png, which stay.
"""

from __future__ import annotations

import subprocess
import sys

from demo import ROOT
from demo.report import Progress, shortest

FOLDER = ROOT / ".demo-pictures"
DASHBOARDS: dict[str, list[str]] = {
    "fleet": [],
    "node": ["--variable", "instance=gpu-node-1"],
    "self": [],
}
# The demo is young: what was an hour ago is of another one.
OPTIONS = ["--from", "now-2m", "--scrape-interval", "1s"]
SECONDS = 120.0


def draw(prometheus: str) -> None:
    """Draw each dashboard, and print its path."""
    try:
        FOLDER.mkdir(exist_ok=True)
    except OSError as error:
        print(f"cannot write {FOLDER}: {error.strerror}", flush=True)
        return
    for name, options in DASHBOARDS.items():
        path = FOLDER / f"{name}.png"
        progress = Progress(f"drawing {shortest(path)}")
        argv = [sys.executable, "-m", "dashboards.preview", name, "--prometheus", prometheus]
        argv += [*OPTIONS, *options, "--output", str(path)]
        done = subprocess.run(
            argv, cwd=ROOT, capture_output=True, text=True, timeout=SECONDS, check=False
        )
        progress.end()
        if done.returncode != 0:
            print(f"failed: {' '.join(done.stderr.split())[-300:]}", flush=True)
