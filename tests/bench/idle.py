"""CPU time of the whole process tree at default intervals, beside Debian's node_exporter.

Both are scraped every 15 s, as Prometheus does by default, on the same machine at the same time.
"""

from __future__ import annotations

import time
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import psutil

from bench.measure import Scraper, cpu_seconds, table
from bench.scrape import NodeExporter, is_ready
from testbed.gpus import Machine
from testbed.kmsg import KernelLog
from testbed.nics import Machine as NicMachine
from testbed.node import Node, wait_until

SECONDS = 180.0
SCRAPE_SECONDS = 15.0
SETTLE_SECONDS = 12.0
SMALL = "node, mounts, network, kernel_log"
LARGE = "the same, with 8 simulated H100 and 8 RDMA ports"


def small(folder: Path) -> Node:
    """Return an agent with the probes of a node without accelerators."""
    probes: dict[str, Any] = {
        "mounts": {"targets": [{"path": "/"}]},
        "network": {"enabled": "auto"},
        "kernel_log": {"enabled": "auto"},
    }
    return Node(folder, {"history": {}, "probes": probes})


def large(folder: Path, log: KernelLog) -> Node:
    """Return an agent with the probes of a GPU node."""
    machine = Machine(folder, "H100").start()
    NicMachine(folder / "sys", mlx5_infiniband=8)
    mounts = folder / "proc/self/mountinfo"  # the machine has no mount: each run would fail
    mounts.unlink(missing_ok=True)
    mounts.symlink_to("/proc/self/mountinfo")
    probes: dict[str, Any] = {
        "mounts": {"targets": [{"path": "/"}]},
        "network": {"enabled": "auto"},
        "kernel_log": {"path": str(log.path)},
        "nvidia": machine.settings,
        "rdma": {"enabled": "auto"},
    }
    config = {"history": {}, "probes": probes}
    return Node(folder, config, *machine.flags, **machine.environment)


def parts(pid: int) -> dict[str, float]:
    """CPU seconds by process: the main one, the fork server with its ended workers, residents."""
    main = psutil.Process(pid)
    found = {"main": sum(main.cpu_times()[:2]), "fork server": 0.0, "runs": 0.0, "residents": 0.0}
    for child in main.children():
        times = child.cpu_times()
        found["fork server"] += times.user + times.system
        found["runs"] += times.children_user + times.children_system
        found["residents"] += sum(sum(one.cpu_times()[:2]) for one in child.children())
    return found


def main(folder: Path) -> None:
    """Print the table."""
    with ExitStack() as stack:
        for name in ("small", "large", "peer"):
            (folder / name).mkdir()
        log = stack.enter_context(KernelLog(folder / "large"))
        nodes = {
            SMALL: stack.enter_context(small(folder / "small")),
            LARGE: stack.enter_context(large(folder / "large", log)),
        }
        peer = stack.enter_context(NodeExporter(folder / "peer", 0))
        for node in nodes.values():
            wait_until(partial(is_ready, node))
        ports = [node.port for node in nodes.values()]
        scrapers = [Scraper(port) for port in (*ports, peer.port)]
        for scraper in scrapers:
            scraper.scrape()
        time.sleep(SETTLE_SECONDS)
        before = {name: parts(node.process.pid) for name, node in nodes.items()}
        peer_before = cpu_seconds(peer.process.pid)
        began = time.monotonic()
        while time.monotonic() - began < SECONDS:
            for scraper in scrapers:
                scraper.scrape()
            time.sleep(SCRAPE_SECONDS)
        took = time.monotonic() - began
        rows = []
        for name, node in nodes.items():
            after = parts(node.process.pid)
            used = {part: after[part] - before[name][part] for part in after}
            rows.append(
                [name, *(f"{value / took:.3%}" for value in (sum(used.values()), *used.values()))]
            )
        used_by_peer = (cpu_seconds(peer.process.pid) - peer_before) / took
        rows.append(["node_exporter", f"{used_by_peer:.2%}", "", "", "", ""])
        for scraper in scrapers:
            scraper.close()
    print(f"CPU time per second over {took:.0f} s, as a share of one core.\n")
    table(["exporter", "all", "main", "fork server", "runs", "residents"], rows)
