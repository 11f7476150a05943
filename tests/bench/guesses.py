"""Guesses of passwords, 100 per second for a minute: scrapes with the right password meanwhile.

The hash has cost 10, as in the documentation: one computation takes about 50 ms of a core, so that
most guesses are refused or dropped. The agent has the soft limit of 1,024 descriptors that systemd
sets. Every scrape has a connection of its own.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psutil

from bench.measure import percentile, table
from testbed.guesses import ask, ask_and_leave, response_to, status_of, write_users
from testbed.node import Node, wait_until

SECONDS = 60
GUESSES_PER_SECOND = 100
SCRAPES_PER_SECOND = 10
# Clients that wait for a response at the same time, at most.
PATIENT_CLIENTS = 300
MOST_SECONDS = 1.0
MOST_THREADS = 200


class Attack:
    """Sends guesses from a thread of its own inside the with block, and counts the statuses."""

    def __init__(self, port: int, patient: bool) -> None:
        self._port = port
        self._patient = patient
        self._stop = threading.Event()
        self._pool = ThreadPoolExecutor(PATIENT_CLIENTS)
        self._thread = threading.Thread(target=self._send)
        self.statuses: Counter[str] = Counter()
        self.sent = 0

    def __enter__(self) -> Attack:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()
        self._pool.shutdown()

    def _send(self) -> None:
        began = time.monotonic()
        while not self._stop.wait(
            max(0.0, began + self.sent / GUESSES_PER_SECOND - time.monotonic())
        ):
            self.sent += 1
            if self._patient:
                self._pool.submit(self._ask, f"guess {self.sent}")
            else:
                ask_and_leave(self._port, "prometheus", f"guess {self.sent}")

    def _ask(self, password: str) -> None:
        status = status_of(response_to(ask(self._port, "prometheus", password)))
        self.statuses[status or "none"] += 1


def main(folder: Path) -> None:
    """Print the table."""
    rows = [_measure(folder, patient) for patient in (False, True)]
    print(
        f"{GUESSES_PER_SECOND} guesses and {SCRAPES_PER_SECOND} scrapes per second, {SECONDS} s.\n"
    )
    head = ["guessing client", "guesses", "401", "503", "none", "scrapes", "p50", "p99", "max"]
    table([*head, "failed", "threads, max", "descriptors, max"], rows)


def _measure(folder: Path, patient: bool) -> list[str]:
    """Return a row of the table. Raises AssertionError where a limit is exceeded."""
    web_config = folder / "web.yaml"
    write_users(web_config, 10, prometheus="right")
    with Node(folder, {}, f"--web.config.file={web_config}") as node:
        process = psutil.Process(node.process.pid)
        process.rlimit(psutil.RLIMIT_NOFILE, (1024, 1024))
        node.session.auth = ("prometheus", "right")
        wait_until(lambda: node.get("/readyz").ok and node.get("/metrics").ok)
        times: list[float] = []
        failed = threads = descriptors = 0
        with Attack(node.port, patient) as attack:
            began = time.monotonic()
            while time.monotonic() - began < SECONDS:
                started = time.monotonic()
                status = status_of(response_to(ask(node.port, "prometheus", "right")))
                times.append(time.monotonic() - started)
                failed += status != "200"
                threads = max(threads, process.num_threads())
                descriptors = max(descriptors, process.num_fds())
                time.sleep(max(0.0, started + 1 / SCRAPES_PER_SECOND - time.monotonic()))
    assert failed == 0, f"{failed} scrapes failed"
    assert percentile(times, 0.99) < MOST_SECONDS, f"p99 {percentile(times, 0.99):.2f} s"
    assert threads < MOST_THREADS, f"{threads} threads"
    return [
        "waits" if patient else "hangs up",
        str(attack.sent),
        *(str(attack.statuses[status]) for status in ("401", "503", "none")),
        str(len(times)),
        *(f"{percentile(times, share) * 1000:.1f} ms" for share in (0.5, 0.99, 1.0)),
        str(failed),
        str(threads),
        str(descriptors),
    ]
