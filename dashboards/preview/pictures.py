"""Draw the pictures of docs/dashboards.md: all dashboards, with the data of a simulated fleet.

`python -m dashboards.preview.pictures` starts the fleet of the test bed in a real Prometheus, with
the rules of this checkout; with --prometheus, one that runs is used.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from dashboards.preview.__main__ import FOLDER, render
from dashboards.preview.queries import Prometheus, read
from dashboards.preview.span import Span

ROOT = Path(__file__).parents[2]

# Nodes with faults, and the job that has one of them.
VARIABLES = {
    "node": {"instance": ["gpu-01"]},
    "hardware": {"instance": ["gpu-04"]},
    "job": {"job_name": ["pretrain"]},
}
# The fleet has an hour of past.
SINCE = "now-1h"
# Of a long dashboard, its first rows.
LINES = 64
# Rules with an interval of minutes, and alerts that wait, need some time after the start.
SETTLED = 90.0


@contextmanager
def fleet() -> Iterator[str]:
    """Yield the address of the Prometheus of a simulated fleet."""
    path = os.pathsep.join(str(ROOT / folder) for folder in ("", "exporter", "tests"))
    command = [sys.executable, "-m", "testbed.site", "--rules", str(ROOT / "rules")]
    with subprocess.Popen(
        [*command, "--port", "19099", "--minutes", "15"],
        env={**os.environ, "PYTHONPATH": path},
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            assert process.stdout is not None
            address = process.stdout.readline().strip()
            if not address.startswith("http"):
                raise SystemExit("the simulated fleet did not start")
            print(f"{address}: waiting {SETTLED:.0f} s for rules and alerts", flush=True)
            time.sleep(SETTLED)
            yield address
        finally:
            process.terminate()


def pictures(address: str, output: Path, names: list[str]) -> None:
    """Draw the dashboards, or those that are named."""
    now = time.time()
    for path in sorted(FOLDER.glob("*.json")):
        if names and path.stem not in names:
            continue
        dashboard = read(path)
        known = {model["name"] for model in dashboard["templating"]["list"]}
        chosen = {
            name: values for name, values in VARIABLES.get(path.stem, {}).items() if name in known
        }
        file = output / f"{path.stem}.png"
        span = Span.last(SINCE, now)
        render(dashboard, Prometheus(address), span, chosen, file, most=LINES)
        print(f"{file}: {file.stat().st_size // 1000} kB")


def main() -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--prometheus", metavar="URL")
    parser.add_argument("--output", type=Path, default=ROOT / "docs" / "pictures")
    parser.add_argument("names", nargs="*", metavar="NAME")
    given = parser.parse_args()
    if given.prometheus:
        pictures(given.prometheus, given.output, given.names)
        return
    with fleet() as address:
        pictures(address, given.output, given.names)


if __name__ == "__main__":
    main()
