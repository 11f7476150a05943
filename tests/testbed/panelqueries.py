"""Queries of panels, evaluated by promtool over series on paper."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from pathlib import Path

import yaml

from testbed.node import ROOT

PROMTOOL = ROOT / ".tools/root/usr/bin/promtool"
# A query, series with their values, and the samples expected.
Case = tuple[str, dict[str, str], list[tuple[dict[str, str], float]]]


def labelled(**labels: str) -> str:
    """Return labels as PromQL writes them."""
    return "{" + ", ".join(f'{name}="{of}"' for name, of in labels.items()) + "}"


def evaluate(folder: Path, cases: Sequence[Case]) -> None:
    """Evaluate queries after five minutes: query, series, and the samples expected."""
    tests = [
        {
            "name": str(wanted),
            "interval": "15s",
            "input_series": [{"series": name, "values": values} for name, values in series.items()],
            "promql_expr_test": [
                {
                    "expr": query,
                    "eval_time": "5m",
                    "exp_samples": [
                        {"labels": labelled(**labels), "value": value} for labels, value in wanted
                    ],
                }
            ],
        }
        for query, series, wanted in cases
    ]
    path = folder / "tests.yaml"
    path.write_text(yaml.safe_dump({"rule_files": [], "tests": tests}))
    done = subprocess.run(
        [PROMTOOL, "test", "rules", str(path)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
