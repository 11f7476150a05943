"""Eight RDMA ports read every second, compared with node_exporter's infiniband collector.

Both read the same simulated sysfs on a disk of this machine (on a real node each counter is a
request to the firmware, for both). Both are scraped every second on one keep-alive connection with
gzip, in sequence: nodevitals with `collect[]=rdma` and, as a second job, with
`collect[]=rdma&collect[]=network`; node_exporter with all other collectors off, and with netclass.
"""

from __future__ import annotations

import time
from contextlib import ExitStack
from pathlib import Path

import requests

from bench.measure import Scraper, cpu_seconds, percentile, pss_bytes, table
from testbed.nics import Machine
from testbed.node import Node, free_port, wait_until
from testbed.servers import BINARIES, start

SECONDS = 180
SLOW, FAST = "every 15 s", "every second"


def node_exporter(stack: ExitStack, folder: Path, sysfs: Path, *collectors: str) -> tuple[int, int]:
    """Start Debian's node_exporter with only these collectors. Return its port and process ID."""
    port = free_port()
    flags = [f"--web.listen-address=127.0.0.1:{port}", f"--path.sysfs={sysfs}"]
    flags += ["--collector.disable-defaults", "--web.disable-exporter-metrics"]
    flags += [f"--collector.{name}" for name in collectors]
    log = folder / f"node_exporter-{len(collectors)}.log"
    process = start([str(BINARIES / "prometheus-node-exporter"), *flags], log)
    stack.callback(process.wait)
    stack.callback(process.terminate)

    def answers() -> bool:
        try:
            return requests.get(f"http://127.0.0.1:{port}/metrics", timeout=5).ok
        except requests.RequestException:
            return False

    wait_until(answers)
    return port, process.pid


def agent(stack: ExitStack, folder: Path, machine: Machine, interval: str) -> tuple[int, int]:
    """Start an agent with this interval of both probes. Return its port and process ID."""
    folder.mkdir()
    timing = {"interval": interval}
    node = Node(folder, {"probes": {"rdma": timing, "network": timing}}, *machine.flags)
    stack.enter_context(node)
    wait_until(lambda: node.get("/readyz").ok)
    return node.port, node.process.pid


def series(port: int, query: str) -> int:
    """Return the number of samples of a scrape."""
    lines = requests.get(f"http://127.0.0.1:{port}/metrics{query}", timeout=30).text.splitlines()
    return sum(1 for line in lines if line and not line.startswith("#"))


def main(folder: Path) -> None:
    """Print the table."""
    rdma, both = "?collect[]=rdma", "?collect[]=rdma&collect[]=network"
    with ExitStack() as stack:
        machine = Machine(folder / "sys", gid_rows=256, mlx5_roce=8)
        fast = agent(stack, folder / "fast", machine, "1s")
        slow = agent(stack, folder / "slow", machine, "15s")
        pair = agent(stack, folder / "pair", machine, "1s")
        alone = node_exporter(stack, folder, machine.folder, "infiniband")
        paired = node_exporter(stack, folder, machine.folder, "infiniband", "netclass")
        watched = {
            (f"nodevitals, both probes {FAST}", rdma): fast,
            (f"nodevitals, both probes {SLOW}", rdma): slow,
            ("node_exporter infiniband", ""): alone,
            (f"nodevitals, both probes {FAST}", both): pair,
            ("node_exporter infiniband, netclass", ""): paired,
        }
        scrapers = {key: Scraper(port, f"/metrics{key[1]}") for key, (port, _) in watched.items()}
        for scraper in scrapers.values():
            stack.callback(scraper.close)
            scraper.scrape()
        time.sleep(2)
        before = {key: cpu_seconds(pid) for key, (_, pid) in watched.items()}
        times: dict[tuple[str, str], list[float]] = {key: [] for key in watched}
        began = time.monotonic()
        for second in range(SECONDS):
            for number, (key, scraper) in enumerate(scrapers.items()):
                due = began + second + number / len(scrapers)
                time.sleep(max(0.0, due - time.monotonic()))
                times[key].append(scraper.scrape())
        elapsed = time.monotonic() - began
        rows = [
            [
                key[0],
                key[1] or "-",
                str(series(port, key[1])),
                f"{percentile(times[key], 0.5) * 1000:.2f} ms",
                f"{percentile(times[key], 0.99) * 1000:.2f} ms",
                f"{(cpu_seconds(pid) - before[key]) / elapsed:.2%}",
                f"{pss_bytes(pid) / 2**20:.1f} MiB",
            ]
            for key, (port, pid) in watched.items()
        ]
    print(f"One scrape per second each, for {SECONDS} s; CPU is of one core, all processes.\n")
    table(["exporter", "scrape", "series", "p50", "p99", "CPU", "PSS"], rows)
