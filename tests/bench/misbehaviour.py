"""Scrapes and schedules while ten workers misbehave at once, compared with none."""

from __future__ import annotations

import time
from contextlib import ExitStack
from pathlib import Path

import psutil

from bench.measure import Scraper, percentile, pss_bytes, table
from testbed.faultyfs import FaultyFileSystem
from testbed.node import Node, wait_until

BAD = (
    *("hangs", "segfaults", "spins", "allocates", "garbage", "huge_header", "forks"),
    *("leaves_orphans", "ignores_term", "floods_stderr"),
)
HEALTHY = tuple(f"healthy-{number}" for number in range(5))
SECONDS = 60
INTERVAL = 2


def main(folder: Path) -> None:
    """Print the table."""
    rows = []
    with ExitStack() as stack:
        filer = stack.enter_context(FaultyFileSystem(folder))
        for title, bad in (("all healthy", ()), ("ten misbehave", BAD)):
            filer.fault("hang" if bad else "none")
            rows.append(_measure(folder / title, title, bad, filer.mountpoint))
        filer.fault("hang")
        title = "also the fork server killed, then stopped"
        rows.append(_measure(folder / title, title, BAD, filer.mountpoint, attack=True))
    print(f"{SECONDS} s each, one scrape per 20 ms, probes every {INTERVAL} s, timeout 1 s.\n")
    head = ["", "scrapes", "p50", "p99", "max", "failed", "processes, max", "PSS, end"]
    table([*head, "healthy runs, done of due", "longest gap"], rows)


class Measurement:
    """Scrapes of a running agent, and runs of its healthy targets, over `SECONDS`."""

    def __init__(self, node: Node) -> None:
        self.scrape_seconds: list[float] = []
        self.failed = 0
        self.most_processes = 0
        self.gaps: list[float] = []
        self._node = node
        self._last_success: dict[str, float] = {}

    def take(self, attack: bool) -> None:
        """Scrape every 20 ms; with `attack`, kill the fork server and later suspend another."""
        scraper = Scraper(self._node.port)
        began = next_check = time.monotonic()
        attacks = [(SECONDS / 3, "kill"), (2 * SECONDS / 3, "suspend")] if attack else []
        while time.monotonic() - began < SECONDS:
            if attacks and time.monotonic() - began > attacks[0][0]:
                getattr(self._node.fork_server(), attacks.pop(0)[1])()
            try:
                self.scrape_seconds.append(scraper.scrape())
            except (OSError, AssertionError):
                self.failed += 1
            if time.monotonic() > next_check:
                next_check = time.monotonic() + 0.1
                self.most_processes = max(self.most_processes, len(psutil.pids()))
                self._check_gaps()
            time.sleep(0.02)
        scraper.close()

    def _check_gaps(self) -> None:
        """Record the time between two successes of each healthy target, from their timestamps."""
        for (name, labels), value in self._node.samples("/metrics?collect[]=misbehave").items():
            target = dict(labels).get("target", "")
            if name == "nodevitals_probe_last_success_timestamp_seconds" and target in HEALTHY:
                before = self._last_success.get(target)
                if before is not None and value > before:
                    self.gaps.append(value - before)
                self._last_success[target] = value


def _measure(
    folder: Path, title: str, bad: tuple[str, ...], hung: Path, attack: bool = False
) -> list[str]:
    """Return a row of the table."""
    folder.mkdir()
    misbehave = {"behaviours": [*HEALTHY, *bad], "folder": str(hung), "series": 100}
    timing = {"interval": f"{INTERVAL}s", "timeout": "1s"}
    with Node(folder, {"defaults": timing, "probes": {"misbehave": misbehave}}) as node:
        wait_until(lambda: node.value("nodevitals_probe_success", target="healthy-0") == 1)
        before = _healthy_runs(node)
        measured = Measurement(node)
        measured.take(attack)
        done = _healthy_runs(node) - before
        memory = pss_bytes(node.process.pid)
    times, gaps = measured.scrape_seconds, measured.gaps
    return [
        title,
        str(len(times)),
        *(f"{percentile(times, share) * 1000:.2f} ms" for share in (0.5, 0.99, 1.0)),
        str(measured.failed),
        str(measured.most_processes),
        f"{memory / 2**20:.1f} MiB",
        f"{done:.0f} of {len(HEALTHY) * SECONDS // INTERVAL}",
        f"{max(gaps):.2f} s" if gaps else "-",
    ]


def _healthy_runs(node: Node) -> float:
    """Return the number of successful runs of the healthy targets."""
    return sum(
        value
        for (name, labels), value in node.samples("/metrics?collect[]=misbehave").items()
        if name == "nodevitals_probe_runs_total"
        and ("outcome", "ok") in labels
        and dict(labels)["target"] in HEALTHY
    )
