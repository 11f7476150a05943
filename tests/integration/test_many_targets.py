"""Hundreds of targets on a small machine: all run, and none is forgotten."""

from __future__ import annotations

from pathlib import Path

from testbed.node import Node, wait_until

TARGETS = 600


def test_hundreds_of_targets_run_and_none_is_stuck(tmp_path: Path) -> None:
    """The fork server's socket holds some 300 commands; no more than 64 workers run at once."""
    behaviours = [f"healthy-{number}" for number in range(TARGETS)]
    config = {
        "defaults": {"interval": "1h", "timeout": "20s"},
        "probes": {"misbehave": {"behaviours": behaviours}},
    }
    with Node(tmp_path, config) as node:
        most = 0

        def successes() -> float:
            nonlocal most
            most = max(most, len(node.tree()))
            samples = node.samples("/metrics?collect[]=misbehave").items()
            return sum(value for (name, _), value in samples if name == "nodevitals_probe_success")

        wait_until(lambda: successes() == TARGETS, 120)
        assert most <= 64 + 2
        assert node.value("nodevitals_worker_processes", state="stuck") == 0
