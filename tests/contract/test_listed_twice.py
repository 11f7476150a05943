"""Every rule is evaluated where each target is scraped twice: none ends in an error.

A node is listed twice where two files of service discovery have it with different labels. A join
whose "one" side is not unique then fails for all nodes.
"""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from testbed.node import ROOT
from testbed.servers import BINARIES

TESTS = sorted((ROOT / "rules/tests").glob("*.yaml"))
EVERY = 600
"""Seconds between evaluations, at least: it is errors that are looked for, not moments."""
EVALUATIONS = 50
"""The most evaluations of a test: some are of a year."""
_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 604800}


def seconds(duration: object) -> int:
    """A duration as promtool reads it, in seconds."""
    parts = re.findall(r"(\d+)([smhdw])", str(duration))
    return sum(int(number) * _UNITS[unit] for number, unit in parts)


def listed_twice(series: str) -> list[str]:
    """A scraped series, and the same of the second target; what rules have recorded is one."""
    name, _, rest = series.rstrip(" }").partition("{")
    if ":" in name or name == "ALERTS":
        return [series]
    labels = f"{rest.rstrip(', ')}, " if rest else ""
    return [series, f'{name}{{{labels}list="second"}}']


def doubled(path: Path) -> dict[str, Any]:
    """A file of rule tests with each target twice; nothing is expected of the results."""
    document: dict[str, Any] = yaml.safe_load(path.read_text())
    document["rule_files"] = [
        str((path.parent / name).resolve()) for name in document["rule_files"]
    ]
    lengths = [0]
    for test in document["tests"]:
        test["input_series"] = [
            given | {"series": series}
            for given in test.get("input_series", [])
            for series in listed_twice(given["series"])
            # What a rule records again must be the same value.
            if not series.startswith("nodevitals:faults:count")
        ]
        cases = [*test.pop("alert_rule_test", []), *test.get("promql_expr_test", [])]
        last = max((case["eval_time"] for case in cases), key=seconds)
        lengths.append(seconds(last))
        one = {"labels": "{}", "value": 1}
        test["promql_expr_test"] = [{"expr": "vector(1)", "eval_time": last, "exp_samples": [one]}]
    every = max(EVERY, seconds(document["evaluation_interval"]), max(lengths) // EVALUATIONS)
    document["evaluation_interval"] = f"{every}s"
    return document


@pytest.mark.parametrize("path", TESTS, ids=lambda path: path.stem)
def test_no_rule_fails_where_every_target_is_listed_twice(path: Path, tmp_path: Path) -> None:
    file = tmp_path / path.name
    file.write_text(yaml.safe_dump(doubled(path)))
    argv = [str(BINARIES / "promtool"), "test", "rules", str(file)]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
