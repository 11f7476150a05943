"""A running agent and its maintenance file: written, replaced by what would hang, removed."""

from __future__ import annotations

import json
import os
from pathlib import Path

from testbed.node import Node, run, wait_until

IN_MAINTENANCE = "nodevitals_node_maintenance"
SUCCESS = "nodevitals_probe_success"
RUNS = "nodevitals_probe_runs_total"


def test_agent_follows_the_file(tmp_path: Path) -> None:
    file = tmp_path / "etc/maintenance"
    settings = {"file": str(file), "interval": "500ms"}
    with Node(tmp_path, {"probes": {"maintenance": settings}}) as node:
        config = f"--config.file={node.config_file}"
        wait_until(lambda: node.value(IN_MAINTENANCE) == 0)
        done = run("maintenance", "start", "--for=1h", "--reason=new cable", config)
        assert done.returncode == 0, done.stderr
        wait_until(lambda: node.value(IN_MAINTENANCE) == 1)
        assert node.value("nodevitals_node_maintenance_info", reason="new cable") == 1
        node.kill()
        node.start()
        wait_until(lambda: node.value(IN_MAINTENANCE) == 1)

        # A FIFO without a writer: unknown, and nothing waits for it.
        file.unlink()
        os.mkfifo(file)
        wait_until(lambda: node.value(SUCCESS, probe="maintenance") == 0)
        wait_until(lambda: node.value(IN_MAINTENANCE) is None)
        assert node.value("nodevitals_probe_stuck_seconds", probe="maintenance") == 0
        assert node.value(SUCCESS, probe="node") == 1

        done = run("maintenance", "end", config)
        assert done.returncode == 0, done.stderr
        wait_until(lambda: node.value(IN_MAINTENANCE) == 0)


def test_history_has_a_row_per_change(tmp_path: Path) -> None:
    """The probe's state and the outcome of its run have one name: one of them is recorded."""
    settings = {"file": str(tmp_path / "etc/maintenance"), "interval": "1s"}
    with Node(tmp_path, {"probes": {"maintenance": settings}}) as node:
        wait_until(lambda: (node.value(RUNS, probe="maintenance", outcome="ok") or 0) >= 3)
    done = run("history", f"--config.file={node.config_file}", "--json")
    rows = [row for row in json.loads(done.stdout) if row["device"] == "maintenance"]
    assert [row["state"] for row in rows] == ["none"]
