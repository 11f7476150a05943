"""What the demo prints: the addresses of the servers, and a table of faults and alerts."""

from __future__ import annotations

import time
from typing import Any

from demo.pipeline import SPEED, Pipeline

STARTING = "starting three nodevitals agents, Prometheus, Alertmanager and a webhook …"
COMPLETE = "every alert arrived, and resolved after the repair unless its damage is permanent"
INCOMPLETE = "NOT every alert arrived"


def print_addresses(pipeline: Pipeline) -> None:
    """Print where each server listens."""
    agents = (
        (pipeline.this_node, "this node, real"),
        (pipeline.gpu_node, "gpu-node-1, simulated: 8 GPUs, 8 NICs"),
        (pipeline.npu_node, "npu-node-1, simulated: 8 NPUs"),
    )
    for number, (node, description) in enumerate(agents):
        name = "nodevitals" if number == 0 else ""
        print(f"  {name:<13} {node.url}/metrics   ({description})")
    print(f"  Prometheus    {pipeline.prometheus.url}/alerts")
    print(f"  Alertmanager  {pipeline.alertmanager.url}")
    print(f"  rules: as shipped, with waits {SPEED:g} times shorter\n", flush=True)


def print_verdict(complete: bool) -> None:
    """Print the tour's result."""
    print(COMPLETE if complete else INCOMPLETE)


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
