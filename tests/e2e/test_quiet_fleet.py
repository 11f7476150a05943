"""A healthy fleet of 200 nodes for an hour: no page, and no more warnings than are allowed here.

`make proof` runs 24 hours of it. All the time is promtool's, which evaluates every rule every 15 s.
"""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

from testbed.node import ROOT
from testbed.quiet import STEP_SECONDS, QuietFleet
from testbed.servers import BINARIES

NODES = 200
# The warnings that an hour's noise may raise.
WARNINGS = 5
# Collecting garbage less often saves a third of promtool's time, for half a gigabyte of memory.
ENVIRONMENT = {**os.environ, "GOGC": "400"}


def evaluate(folder: Path, fleet: QuietFleet) -> subprocess.CompletedProcess[str]:
    """Let promtool evaluate the shipped rules: it fails where a page fires in any minute, or more
    than WARNINGS warnings fire in all.
    """
    rules = [str(file) for file in sorted((ROOT / "rules").glob("*.yaml"))]
    end = fleet.samples * STEP_SECONDS - 60
    firing = 'alertstate="firing"'
    tests: list[dict[str, object]] = [
        {"expr": f'ALERTS{{{firing}, severity="critical"}}', "eval_time": f"{at}s"}
        for at in range(60, end, 60)
    ]
    warnings = f'ALERTS{{{firing}, severity="warning"}}[{end}s]'
    tests.append(
        {
            "expr": f"(count(count_over_time({warnings})) or vector(0)) <= bool {WARNINGS}",
            "eval_time": f"{end}s",
            "exp_samples": [{"value": 1}],
        }
    )
    test = {
        "interval": f"{STEP_SECONDS}s",
        "input_series": fleet.series,
        "promql_expr_test": tests,
    }
    document = {"rule_files": rules, "evaluation_interval": "15s", "tests": [test]}
    file = folder / "quiet.yaml"
    file.write_text(json.dumps(document))
    return subprocess.run(
        [BINARIES / "promtool", "test", "rules", file],
        capture_output=True,
        text=True,
        check=False,
        env=ENVIRONMENT,
    )


@pytest.mark.timeout(300)
def test_healthy_fleet_raises_no_page(tmp_path: Path) -> None:
    done = evaluate(tmp_path, QuietFleet(NODES, 1))
    assert done.returncode == 0, (done.stdout + done.stderr)[:3000]


def test_single_fault_in_a_healthy_fleet_is_found(tmp_path: Path) -> None:
    """The test above can fail: here one port of ten nodes is down."""
    fleet = QuietFleet(10, 0.5)
    for series in fleet.series:
        if series["series"].startswith("nodevitals_rdma_port_up") and "node-003" in str(series):
            series["values"] = f"0x{fleet.samples}"
    done = evaluate(tmp_path, fleet)
    assert done.returncode == 1
    assert "RdmaPortDown" in done.stdout + done.stderr
