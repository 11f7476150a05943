"""CPU time and memory of a default install, all processes, beside Debian's node_exporter.

The default install has the configuration that `nodevitals init` writes: every probe that turns on
by itself. All are scraped every 15 s, as Prometheus does by default, on the same machine at the
same time. The first minute begins with the start of the process.
"""

from __future__ import annotations

import time
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import psutil

from bench.measure import Scraper, cpu_seconds, pss_bytes, table
from bench.scrape import NodeExporter, is_ready
from testbed.gpus import Machine
from testbed.kmsg import KernelLog
from testbed.nics import Machine as NicMachine
from testbed.node import Node, run, wait_until

SECONDS = 600.0
SCRAPE_SECONDS = 15.0
FIRST_SECONDS = 60.0
SMALL = "default install, no accelerators"
LARGE = "node, mounts, network, kernel_log, 8 simulated H100, 8 RDMA ports"
STATE = "#state_directory: /var/lib/nodevitals"


def small(folder: Path) -> Node:
    """Return an agent with the configuration that `nodevitals init` writes on this machine."""
    done = run("init", str(folder / "site"))
    assert done.returncode in (0, 1), done.stderr  # 1: the unit does not find a checkout
    text = (folder / "site/nodevitals.yaml").read_text()
    assert STATE in text
    node = Node(folder, {})
    node.config_file.write_text(text.replace(STATE, f"state_directory: {folder / 'state'}"))
    return node


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


def scrape_for(seconds: float, scrapers: list[Scraper]) -> None:
    """Scrape all every 15 s, for so long."""
    end = time.monotonic() + seconds
    while (left := end - time.monotonic()) > 0:
        for scraper in scrapers:
            scraper.scrape()
        time.sleep(min(SCRAPE_SECONDS, left))


def main(folder: Path) -> None:
    """Print the table."""
    with ExitStack() as stack:
        for name in ("small", "large", "peer"):
            (folder / name).mkdir()
        log = stack.enter_context(KernelLog(folder / "large"))
        peer = stack.enter_context(NodeExporter(folder / "peer", 0))
        made = {SMALL: small(folder / "small"), LARGE: large(folder / "large", log)}
        began = time.monotonic()
        nodes = {name: stack.enter_context(node) for name, node in made.items()}
        for node in nodes.values():
            wait_until(partial(is_ready, node))
        ports = [node.port for node in nodes.values()]
        scrapers = [Scraper(port) for port in (*ports, peer.port)]
        scrape_for(FIRST_SECONDS - (time.monotonic() - began), scrapers)
        first = {name: parts(node.process.pid) for name, node in nodes.items()}
        peer_first = cpu_seconds(peer.process.pid)
        began = time.monotonic()
        scrape_for(SECONDS, scrapers)
        took = time.monotonic() - began
        rows = []
        for name, node in nodes.items():
            after = parts(node.process.pid)
            used = {part: (after[part] - first[name][part]) / took for part in after}
            shares = (sum(first[name].values()) / FIRST_SECONDS, sum(used.values()), *used.values())
            memory = f"{pss_bytes(node.process.pid) / 2**20:.0f} MiB"
            rows.append([name, *(f"{share:.3%}" for share in shares), memory])
        used_by_peer = (cpu_seconds(peer.process.pid) - peer_first) / took
        memory = f"{pss_bytes(peer.process.pid) / 2**20:.0f} MiB"
        rows.append(["node_exporter", "", f"{used_by_peer:.3%}", "", "", "", "", memory])
        for scraper in scrapers:
            scraper.close()
    print(f"CPU time per second, as a share of one core, settled over {took:.0f} s.\n")
    head = ["exporter", "first minute", "settled", "main", "fork server", "runs", "residents"]
    table([*head, "PSS"], rows)
