"""Thousands of targets on one node: whether each runs, and what the agent takes for it."""

from __future__ import annotations

import time
from collections import Counter
from pathlib import Path

from bench.measure import cpu_seconds, pss_bytes, table
from testbed.node import Node, wait_until

COUNTS = (100, 600, 3000)
INTERVAL_SECONDS = 15
SECONDS = 60


def main(folder: Path) -> None:
    """Print the table."""
    rows = [_measure(folder / str(count), count) for count in COUNTS]
    print(f"Targets that succeed, every {INTERVAL_SECONDS} s, over {SECONDS} s.\n")
    head = ["targets", "runs", "ok", "stuck", "PSS, most", "main process, of a core"]
    table([*head, "all processes, of a core"], rows)


def _measure(folder: Path, count: int) -> list[str]:
    folder.mkdir()
    behaviours = [f"healthy-{number}" for number in range(count)]
    config = {
        "defaults": {"interval": f"{INTERVAL_SECONDS}s", "timeout": "10s"},
        "probes": {"misbehave": {"behaviours": behaviours}},
    }
    with Node(folder, config) as node:
        pid = node.process.pid
        wait_until(lambda: sum(_runs(node).values()) >= count, 300)
        before, own, everything = _runs(node), _own_cpu_seconds(pid), cpu_seconds(pid)
        began, most = time.monotonic(), 0
        while time.monotonic() < began + SECONDS:
            most = max(most, pss_bytes(pid))
            time.sleep(1)
        seconds = time.monotonic() - began
        own, everything = _own_cpu_seconds(pid) - own, cpu_seconds(pid) - everything
        done = _runs(node) - before
        stuck = node.value("nodevitals_worker_processes", state="stuck")
    return [
        str(count),
        str(done.total()),
        str(done["ok"]),
        f"{stuck:g}",
        f"{most / 2**20:.1f} MiB",
        f"{own / seconds:.1%}",
        f"{everything / seconds:.1%}",
    ]


def _runs(node: Node) -> Counter[str]:
    found: Counter[str] = Counter()
    for (name, labels), value in node.samples("/metrics?collect[]=misbehave").items():
        if name == "nodevitals_probe_runs_total":
            found[dict(labels)["outcome"]] += int(value)
    return found


def _own_cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / 100  # utime and stime (proc_pid_stat(5))
