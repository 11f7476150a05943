"""`nodevitals rules render`: a rule fires when more than its share of samples is true."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
import yaml

from nodevitals.commands.rules.sampled_rules import parse, render
from nodevitals.document import DocumentError
from testbed.node import ROOT, run
from testbed.servers import BINARIES

RULE = """
rules:
  - name: TooMuch
    query_expression: m > 1
    step: {step}
    interval: {interval}
    percent_threshold: {threshold}
    severity: warning
"""


def fires(folder: Path, samples: str, at: str, **rule: object) -> bool:
    """Whether a rule fires at a time, by promtool, on samples that are one minute apart."""
    rule = {"step": "1m", "interval": "10m", "threshold": 70, **rule}
    (folder / "custom.yaml").write_text(render(parse(RULE.format(**rule).encode())))
    series = [{"series": 'm{instance="n1"}', "values": samples}]
    look = {"expr": 'count(ALERTS{alertstate="firing"}) or vector(0)', "eval_time": at}
    look["exp_samples"] = [{"value": 1}]  # type: ignore[assignment]
    test = {"interval": "1m", "input_series": series, "promql_expr_test": [look]}
    document = {"rule_files": ["custom.yaml"], "evaluation_interval": "1m", "tests": [test]}
    file = folder / "test.yaml"
    file.write_text(yaml.safe_dump(document))
    command = [str(BINARIES / "promtool"), "test", "rules", str(file)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0 or "got: {} 0E+00" in done.stdout + done.stderr, done
    return done.returncode == 0


@pytest.mark.parametrize(
    ("bad", "threshold", "expected"),
    [
        (7, 70, False),  # exactly the share
        (8, 70, True),
        (10, 99.9, True),
        (0, 0, False),
        (1, 0, True),
        (9, 90, False),
        (10, 90, True),
    ],
)
def test_a_rule_fires_strictly_above_its_share(
    tmp_path: Path, bad: int, threshold: float, expected: bool
) -> None:
    good = 10 - bad
    values = " ".join(["0x30", *(["2"] * bad), *(["0"] * good)])  # the last ten samples, until 40m
    assert fires(tmp_path, values, "40m", threshold=threshold) == expected


def test_the_number_of_samples_is_rounded_down(tmp_path: Path) -> None:
    """An interval of 630 s with a step of 1m has ten samples: an older one does not count."""
    assert not fires(tmp_path, "0x29 2 0x10", "40m", interval="630s", threshold=0)
    assert fires(tmp_path, "0x30 2 0x9", "40m", interval="630s", threshold=0)


def test_missing_samples_count_as_false(tmp_path: Path) -> None:
    """Five samples exist and all are true: that is five of ten."""
    assert not fires(tmp_path, "_x36 2 2 2 2 2", "40m", threshold=50)
    assert fires(tmp_path, "_x35 2 2 2 2 2 2", "40m", threshold=50)


@pytest.mark.parametrize(
    ("rule", "problem"),
    [
        ({"interval": "30s"}, "rules[0].interval: shorter than the step: no sample"),
        ({"threshold": 100}, "rules[0].percent_threshold"),
        ({"step": "60"}, "rules[0].step: 60 is not a duration"),
    ],
)
def test_impossible_rules_are_errors(rule: dict[str, object], problem: str) -> None:
    text = RULE.format(**{"step": "1m", "interval": "10m", "threshold": 70, **rule})
    with pytest.raises(DocumentError) as error:
        parse(text.encode())
    assert problem in str(error.value)


def test_the_shipped_example_is_valid(tmp_path: Path) -> None:
    done = run("rules", "render", str(ROOT / "rules/examples/custom.example.yaml"))
    assert done.returncode == 0
    file = tmp_path / "custom.yaml"
    file.write_text(done.stdout)
    command = [str(BINARIES / "promtool"), "check", "rules", "--lint=all", str(file)]
    assert subprocess.run(command, capture_output=True, check=False).returncode == 0
    alerts = [rule["alert"] for rule in yaml.safe_load(done.stdout)["groups"][0]["rules"]]
    assert alerts == ["CpuBusy", "MemoryUsed", "StorageSpace", "EccErrors"]
    (tmp_path / "wrong.yaml").write_text("rules: [{name: A}]")
    done = run("rules", "render", str(tmp_path / "wrong.yaml"))
    assert done.returncode == 1
    assert f"{tmp_path}/wrong.yaml: rules[0].query_expression: missing" in done.stderr
