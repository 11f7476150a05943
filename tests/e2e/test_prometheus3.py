"""The tests of all rules hold with the semantics of Prometheus 3 as well.

No Prometheus 3 is among Debian's packages: its left-open ranges are emulated by promtool 2. Some
files of tests are evaluated, with the rules that matter to them; `make proof PART=prometheus3`
evaluates all tests with all rules.
"""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
import yaml

from testbed.alerting.timeline import ENVIRONMENT
from testbed.node import ROOT
from testbed.prometheus3 import (
    LOOKBACK_SECONDS,
    milliseconds,
    rewritten_expression,
    rewritten_values,
    write_pieces,
    write_rewritten,
)

PROMTOOL = str(ROOT / ".tools/root/usr/bin/promtool")
# Short ones, with rates, windows of days and offsets.
TESTS = ("agent.yaml", "disks-days.yaml", "network.yaml")


@pytest.fixture(scope="module")
def rules(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of the rewritten rules."""
    folder: Path = tmp_path_factory.mktemp("rules") / "rules"
    write_rewritten(ROOT / "rules", folder)
    return folder


def test_ranges_are_one_millisecond_shorter() -> None:
    before = 'max_over_time(x{a="[1h]"}[1h30m] offset 5m) - rate(y[1m]) + avg_over_time(z[1h:5m])'
    after = 'max_over_time ( x { a = "[1h]" } [5399999ms] offset 5m ) - rate ( y [59999ms] ) + '
    after += "avg_over_time ( z [3599999ms:5m] )"
    assert rewritten_expression(before).strip() == after


@pytest.mark.parametrize(
    ("values", "interval", "expected"),
    [
        ("1x3", "5m", "1x3 stale"),
        ("1 _x2 2", "2m30s", "1 _ stale 2 _ stale"),
        ("1 _ 2 _x3 3", "2m30s", "1 _ 2 _ stale _ 3 _ stale"),
        ("1x3", "2m", "1x3"),
    ],
)
def test_a_series_is_stale_after_five_minutes(values: str, interval: str, expected: str) -> None:
    assert rewritten_values(values, interval) == expected


def test_the_emulation_tells_the_two_apart(tmp_path: Path) -> None:
    """A test that reads a sample exactly as old as its range, and one exactly five minutes old,
    hold on Prometheus 2 and fail on 3.
    """
    (tmp_path / "rules/tests").mkdir(parents=True)
    (tmp_path / "rules/a.yaml").write_text(
        "groups: [{name: g, rules: [{record: 'a:b', expr: 'count_over_time(a[1m])'}]}]"
    )
    case = "{{expr: {}, eval_time: {}, exp_samples: [{{labels: '{}', value: {}}}]}}"
    for name, expression in (
        ("range", case.format("a:b", "1m", "a:b", 2)),
        ("lookback", case.format("a", "10m", "a", 1)),
    ):
        (tmp_path / f"rules/tests/{name}.yaml").write_text(
            "rule_files: [../a.yaml]\nevaluation_interval: 1m\ntests: [{interval: 1m, "
            f"input_series: [{{series: a, values: 1x5}}], promql_expr_test: [{expression}]}}]"
        )
    write_rewritten(tmp_path / "rules", tmp_path / "rewritten")
    for folder, holds in (("rules", True), ("rewritten", False)):
        for name in ("range", "lookback"):
            done = _promtool(tmp_path / folder / f"tests/{name}.yaml")
            assert (done.returncode == 0) == holds, done.stdout + done.stderr


@pytest.mark.parametrize("name", TESTS)
def test_the_tests_of_the_rules_hold(rules: Path, name: str, tmp_path: Path) -> None:
    document = yaml.safe_load((rules / "tests" / name).read_text())
    evaluated = milliseconds(document["evaluation_interval"])
    # Without an order, a group that reads another one's output may see it one evaluation late.
    assert evaluated < LOOKBACK_SECONDS * 1000 or "group_eval_order" in document, evaluated
    done = _promtool(*write_pieces(rules, name, tmp_path))
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]


def _promtool(*tests: Path) -> subprocess.CompletedProcess[str]:
    argv = [PROMTOOL, "test", "rules", *map(str, tests)]
    return subprocess.run(argv, env=ENVIRONMENT, capture_output=True, text=True, check=False)
