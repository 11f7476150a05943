"""What the demo prints: progress, the addresses of the servers, a table of faults and alerts."""

from __future__ import annotations

import os
import shlex
import sys
import time
from pathlib import Path
from typing import Any

from demo.pipeline import SPEED, Pipeline
from testbed.servers import BINARIES

STARTING = "starting three nodevitals agents, Prometheus, Alertmanager and a webhook"
TOUR = "a tour of one to two minutes: faults, a hub that acts on one, a check between nodes"
THEN = ", then the menu"
COMPLETE = "every alert arrived, and resolved after the repair unless its damage is permanent"
MORE = "`make demo` without ONCE=1 has a menu of these faults, and draws the dashboards"
GRAFANA = (
    "with docker, dashboards/compose.yaml starts Grafana for your own nodes; see its first lines"
)


class Progress:
    """One line: on a terminal it is rewritten, elsewhere it is printed once."""

    def __init__(self, title: str) -> None:
        self._title = title
        self._began = time.monotonic()
        self._terminal = sys.stdout.isatty()
        self._shown = ""
        print(f"{title} …", end="" if self._terminal else "\n", flush=True)

    def show(self, text: str) -> None:
        """Show how far it is."""
        line = f"{self._title} … {text}, {time.monotonic() - self._began:.0f} s"
        if self._terminal and line != self._shown:
            self._shown = line
            print(f"\r\x1b[K{line}", end="", flush=True)

    def end(self) -> None:
        """End the line."""
        if self._terminal:
            print()


def print_plan(once: bool) -> None:
    """Print what comes, and how long it takes."""
    print(TOUR if once else TOUR + THEN, flush=True)


def print_addresses(pipeline: Pipeline) -> None:
    """Print a link to each server, and how to read the one that has no page."""
    agents = (
        (pipeline.storage_node, "storage-node-1, simulated: 4 mounts"),
        (pipeline.gpu_node, "gpu-node-1, simulated: 8 GPUs, 8 NICs"),
        (pipeline.npu_node, "npu-node-1, simulated: 8 NPUs"),
    )
    for number, (node, description) in enumerate(agents):
        name = "nodevitals" if number == 0 else ""
        print(f"  {name:<13} {node.url}/   ({description})")
    # Debian's packages have the classic pages only, and none of Alertmanager.
    print(f"  Prometheus    {pipeline.prometheus.url}/classic/alerts")
    amtool = shlex.quote(shortest(BINARIES / "amtool"))
    print(f"  Alertmanager  {amtool} alert --alertmanager.url={pipeline.alertmanager.url}")
    print(f"  rules: as shipped, with waits {SPEED:g} times shorter")
    print(flush=True)


def shortest(path: Path) -> str:
    """A path as the user can type it: relative to the working directory where it is below it."""
    relative = os.path.relpath(path)
    return str(path) if relative.startswith("..") else relative


def print_verdict(missing: list[str]) -> None:
    """Print the tour's result."""
    print(f"NOT complete: {', '.join(missing)}" if missing else COMPLETE, flush=True)


def print_more() -> None:
    """Print what else there is."""
    print(f"{MORE}\n{GRAFANA}", flush=True)


class Table:
    """Rows with the seconds since the table began."""

    def __init__(self) -> None:
        self._began = time.monotonic()

    def row(self, *cells: str, at: float | None = None) -> None:
        """Print a row: an event, an alert's name, then text; `at` is its monotonic time, or now."""
        seconds = (time.monotonic() if at is None else at) - self._began
        event, name, *text = cells
        print(f"{seconds:7.1f}s  {event:<10}{name:<30}{'  '.join(text)}", flush=True)

    def alert(self, moment: float, alert: dict[str, Any], before: str = "") -> None:
        """Print an alert as Alertmanager sent it, at the time when it arrived."""
        name, summary = alert["labels"]["alertname"], alert["annotations"]["summary"]
        self.row(alert["status"], name, before + summary, at=moment)


class Changes:
    """Which of the arrived alerts are news. Each tier of escalation gets the same alert again,
    some of them late: an episode of an alert begins once and ends once.
    """

    def __init__(self) -> None:
        self._begun: dict[tuple[str, str], str] = {}
        self._ended: set[tuple[str, str]] = set()

    def is_news(self, alert: dict[str, Any]) -> bool:
        """Whether this begins or ends an episode; the alert of the pipeline itself never does."""
        episode, name = (alert["fingerprint"], alert["startsAt"]), alert["labels"]["alertname"]
        if name == "Watchdog" or episode in self._ended:
            return False
        if alert["status"] == "resolved":
            self._ended.add(episode)
            return True
        begins = episode not in self._begun
        self._begun[episode] = name
        return begins

    def firing(self) -> list[str]:
        """The names of alerts that have begun and not ended."""
        return sorted({self._begun[one] for one in self._begun.keys() - self._ended})
