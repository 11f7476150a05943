"""Scrapes of nodevitals and of Debian's prometheus-node-exporter, in turn, with as many series.

Both reply with gzip on one keep-alive connection. node_exporter runs its default collectors, and a
textfile adds series up to the number wanted; nodevitals runs node, one mount, and a probe that adds
series, through the whole engine, every 15 s. Scrapes alternate in blocks, so that other load on the
machine affects both.
"""

from __future__ import annotations

import time
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import requests

from bench.measure import Scraper, cpu_seconds, percentile, pss_bytes, table
from testbed.node import Node, free_port, wait_until
from testbed.servers import BINARIES, start

SERIES = (500, 2000, 10_000)
BLOCKS = 10
SCRAPES_PER_BLOCK = 50
SPACED_SECONDS = 0.1
SPACED_SCRAPES = 60
CPU_SCRAPES = 400


def series_of(url: str) -> int:
    """Return the number of samples of a scrape."""
    text = requests.get(url, timeout=30).text
    return sum(1 for line in text.splitlines() if line and not line.startswith("#"))


class NodeExporter:
    """Debian's node_exporter, with a textfile that adds series up to `series`."""

    def __init__(self, folder: Path, series: int) -> None:
        self._folder = folder / "textfile"
        self._folder.mkdir(parents=True)
        self.port = free_port()
        self._log = folder / "node_exporter.log"
        self._pad(0)
        self._series = series

    def __enter__(self) -> NodeExporter:
        self.process = start(
            [
                str(BINARIES / "prometheus-node-exporter"),
                f"--web.listen-address=127.0.0.1:{self.port}",
                f"--collector.textfile.directory={self._folder}",
            ],
            self._log,
        )
        wait_until(self._answers)
        self._pad(max(0, self._series - series_of(self.url)))
        return self

    def __exit__(self, *_: object) -> None:
        self.process.terminate()
        self.process.wait()

    @property
    def url(self) -> str:
        """The URL of its metrics."""
        return f"http://127.0.0.1:{self.port}/metrics"

    def _answers(self) -> bool:
        try:
            return requests.get(self.url, timeout=5).ok
        except requests.RequestException:
            return False

    def _pad(self, series: int) -> None:
        lines = ["# HELP bench_value A value.\n# TYPE bench_value gauge\n"]
        lines += [f'bench_value{{item="item-{item}"}} {item}\n' for item in range(series)]
        (self._folder / "pad.prom").write_text("".join(lines))


def is_ready(node: Node) -> bool:
    """Return whether every target has ended a run."""
    return node.get("/readyz").ok


def padded_node(folder: Path, series: int) -> Node:
    """Return an agent, not started, that exposes this number of series."""
    folder.mkdir()
    misbehave = {"behaviours": ["healthy"], "series": 1}
    probes = {"misbehave": misbehave, "mounts": {"targets": [{"path": "/"}]}, "node": {}}
    probes |= {"kernel_log": {}, "nvidia": {}}
    node = Node(folder, {"probes": probes})
    with node:
        wait_until(partial(is_ready, node))
        time.sleep(0.3)
        missing = series - series_of(f"{node.url}/metrics")
    misbehave["series"] = max(1, missing + 1)
    node.write({"probes": probes})
    return node


def alternate(scrapers: dict[str, Scraper], pause: float, count: int) -> dict[str, list[float]]:
    """Scrape in alternating blocks; return the seconds of each scrape by name."""
    found: dict[str, list[float]] = {name: [] for name in scrapers}
    for _ in range(BLOCKS):
        for name, scraper in scrapers.items():
            for _ in range(count):
                found[name].append(scraper.scrape())
                time.sleep(pause)
    return found


def main(folder: Path) -> None:
    """Print the tables."""
    latency: list[list[str]] = []
    cost: list[list[str]] = []
    for series in SERIES:
        with ExitStack() as stack:
            _measure(stack, folder, series, latency, cost)
    print("Keep-alive, gzip; ratios are to node_exporter's p50 of the same kind.\n")
    kinds = ("back to back", "100 ms apart")
    latency_head = [cell for kind in kinds for cell in (f"p50 {kind}", "p99", "ratio")]
    table(["exporter", "series", *latency_head], latency)
    cost_head = ["CPU per scrape", "PSS, all processes", "first complete scrape"]
    table(["exporter", "series", *cost_head], cost)


def _measure(
    stack: ExitStack, folder: Path, series: int, latency: list[list[str]], cost: list[list[str]]
) -> None:
    """Append one row per exporter to both tables."""
    node = padded_node(folder / f"nodevitals-{series}", series)
    began = time.monotonic()
    stack.enter_context(node)
    wait_until(partial(is_ready, node))
    complete = time.monotonic() - began
    peer = stack.enter_context(NodeExporter(folder / f"peer-{series}", series))
    pids = {"nodevitals": node.process.pid, "node_exporter": peer.process.pid}
    counts = {
        "nodevitals": series_of(f"{node.url}/metrics"),
        "node_exporter": series_of(peer.url),
    }
    scrapers = {"nodevitals": Scraper(node.port), "node_exporter": Scraper(peer.port)}
    for scraper in scrapers.values():
        stack.callback(scraper.close)
        scraper.scrape()
    back_to_back = alternate(scrapers, 0.0, SCRAPES_PER_BLOCK)
    spaced = alternate(scrapers, SPACED_SECONDS, SPACED_SCRAPES // BLOCKS)
    for name, scraper in scrapers.items():
        latency.append(_latency_row(name, counts[name], back_to_back, spaced))
        before = cpu_seconds(pids[name])
        for _ in range(CPU_SCRAPES):
            scraper.scrape()
        used = (cpu_seconds(pids[name]) - before) / CPU_SCRAPES
        first = f"{complete:.2f} s" if name == "nodevitals" else "-"
        memory = f"{pss_bytes(pids[name]) / 2**20:.1f} MiB"
        cost.append([name, str(counts[name]), f"{used * 1000:.3f} ms", memory, first])


def _latency_row(
    name: str, series: int, back_to_back: dict[str, list[float]], spaced: dict[str, list[float]]
) -> list[str]:
    cells = [name, str(series)]
    for found in (back_to_back, spaced):
        p50 = percentile(found[name], 0.5)
        cells += [f"{p50 * 1000:.2f} ms", f"{percentile(found[name], 0.99) * 1000:.2f} ms"]
        cells.append(f"{p50 / percentile(found['node_exporter'], 0.5):.3f}")
    return cells
