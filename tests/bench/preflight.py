"""Preflight on a simulated node: a fit one passes, and the time it takes, also with what hangs."""

from __future__ import annotations

import sys
import time
from pathlib import Path

from bench.measure import percentile, table
from testbed.faultyfs import FaultyFileSystem
from testbed.fitnode import FitNode

TIMES = 1000
HUNG_TIMES = 100
LIMIT_SECONDS = 5.0


def main(folder: Path) -> None:
    """Print the table."""
    rows = []
    with FitNode(folder) as node:
        rows.append(_row("healthy", node, TIMES, 0))
        with FaultyFileSystem(folder, name="filer") as files:
            files.fault("hang")
            path = ("--path", str(folder / "filer"))
            rows.append(_row("a path that hangs", node, HUNG_TIMES, 1, *path))
            files.fault("none")
        node.machine.hang()
        rows.append(_row("a driver that hangs", node, HUNG_TIMES, None))
    table(["node", "runs", "status 0", "p50", "p95", "longest", "limit"], rows)


def _row(name: str, node: FitNode, times: int, wanted: int | None, *more: str) -> list[str]:
    seconds, good = [], 0
    for number in range(times):
        print(f"\r{name}: {number}/{times}", end="", file=sys.stderr)
        began = time.monotonic()
        ended = node.preflight("--timeout", f"{LIMIT_SECONDS:g}s", *more)
        seconds.append(time.monotonic() - began)
        good += ended.returncode == 0
        if wanted is not None and ended.returncode != wanted:
            print(ended.stdout, file=sys.stderr)
    figures = [percentile(seconds, 0.5), percentile(seconds, 0.95), max(seconds)]
    return [
        name,
        str(times),
        str(good),
        *(f"{one:.2f} s" for one in figures),
        f"{LIMIT_SECONDS:g} s",
    ]
