"""Scrapes and schedules while ten workers misbehave at once, next to the same when none does."""

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
        title = "and the fork server killed, then stopped"
        rows.append(_measure(folder / title, title, BAD, filer.mountpoint, attack=True))
    print(f"{SECONDS} s each, a scrape every 20 ms, probes every {INTERVAL} s, timeout 1 s.\n")
    head = ["", "scrapes", "p50", "p99", "max", "failed", "processes, most", "PSS, end"]
    table([*head, "healthy runs, done of due", "worst gap"], rows)


def _measure(
    folder: Path, title: str, bad: tuple[str, ...], hung: Path, attack: bool = False
) -> list[str]:
    folder.mkdir()
    misbehave = {"behaviours": [*HEALTHY, *bad], "folder": str(hung), "series": 100}
    timing = {"interval": f"{INTERVAL}s", "timeout": "1s"}
    node = Node(folder, {"defaults": timing, "probes": {"misbehave": misbehave}})
    times, most, failed = [], 0, 0
    gaps: list[float] = []
    seen: dict[str, float] = {}
    with node:
        wait_until(lambda: node.value("nodevitals_probe_success", target="healthy-0") == 1)
        scraper = Scraper(node.port)
        done, began = -_healthy_runs(node), time.monotonic()
        attacks = [(SECONDS / 3, "kill"), (2 * SECONDS / 3, "suspend")] if attack else []
        look = began
        while time.monotonic() - began < SECONDS:
            if attacks and time.monotonic() - began > attacks[0][0]:
                getattr(node.fork_server(), attacks.pop(0)[1])()
            try:
                times.append(scraper.scrape())
            except (OSError, AssertionError):
                failed += 1
            if time.monotonic() > look:
                look = time.monotonic() + 0.1
                most = max(most, len(psutil.pids()))
                _note_runs(node, seen, gaps)
            time.sleep(0.02)
        done += _healthy_runs(node)
        memory = pss_bytes(node.process.pid)
        scraper.close()
    return [
        title,
        str(len(times)),
        *(f"{percentile(times, share) * 1000:.2f} ms" for share in (0.5, 0.99, 1.0)),
        str(failed),
        str(most),
        f"{memory / 2**20:.1f} MiB",
        f"{done:.0f} of {len(HEALTHY) * SECONDS // INTERVAL}",
        f"{max(gaps):.2f} s" if gaps else "-",
    ]


def _healthy_runs(node: Node) -> float:
    """Count the successful runs of the healthy targets."""
    return sum(
        value
        for (name, labels), value in node.samples("/metrics?collect[]=misbehave").items()
        if name == "nodevitals_probe_runs_total"
        and ("outcome", "ok") in labels
        and dict(labels)["target"] in HEALTHY
    )


def _note_runs(node: Node, seen: dict[str, float], gaps: list[float]) -> None:
    """Collect the time between two successes of each healthy target, from their timestamps."""
    for (name, labels), value in node.samples("/metrics?collect[]=misbehave").items():
        target = dict(labels).get("target", "")
        if name == "nodevitals_probe_last_success_timestamp_seconds" and target in HEALTHY:
            before = seen.get(target)
            if before is not None and value > before:
                gaps.append(value - before)
            seen[target] = value
