"""Every shipped rule can be back-tested: what it reads from other rules can be written out."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
import yaml

from nodevitals.commands.rules.backtest.inline import Inliner
from nodevitals.commands.rules.backtest.plan import FAULT, Plan, Planner
from nodevitals.commands.rules.backtest.references import references
from nodevitals.commands.rules.backtest.rule_set import read_rule_set
from nodevitals.commands.rules.backtest.windows import settling_seconds
from testbed.node import ROOT
from testbed.servers import BINARIES

RULES = read_rule_set(ROOT / "rules")
RECORDED = {rule.name for rule in RULES if not rule.is_alert}
RAW = Inliner(RULES, ())
METRICS = {
    name
    for rule in RULES
    for name in RAW.metrics(rule.expression)
    if ":" not in name and name not in ("ALERTS", "ALERTS_FOR_STATE")
}
MONITORED = {
    "everything": METRICS,
    "nvidia": {name for name in METRICS if not name.startswith("npu_")},
    "npu-exporter": METRICS - {name for name in RECORDED if ":" not in name},
}


def plan(available: set[str]) -> Plan:
    return Planner(RULES, available).plan()


@pytest.mark.parametrize("site", MONITORED)
def test_the_server_is_asked_for_raw_metrics_only(site: str) -> None:
    for source in plan(MONITORED[site]).sources:
        names = {one.name for one in references(source.expression)[1]}
        assert not {name for name in names if ":" in name}, source


@pytest.mark.parametrize("site", MONITORED)
def test_every_expression_is_promql(tmp_path: Path, site: str) -> None:
    found = plan(MONITORED[site])
    expressions = [one.expression for one in found.sources]
    expressions += [one.expression for one in found.local]
    rules = [{"record": "x", "expr": text} for text in expressions]
    file = tmp_path / "rules.yaml"
    file.write_text(yaml.safe_dump({"groups": [{"name": "g", "rules": rules}]}))
    argv = [str(BINARIES / "promtool"), "check", "rules", "--lint=none", str(file)]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert len(expressions) > 100


def test_every_fault_and_alert_is_evaluated() -> None:
    found = plan(METRICS)
    faults = [rule.labels for rule in RULES if rule.name == FAULT]
    local = [one.rule for one in found.local]
    evaluated = [one.labels for one in found.sources if one.name == FAULT]
    evaluated += [one.labels for one in local if one.name == FAULT]
    assert [labels for labels in faults if labels not in evaluated] == []
    assert {rule for rule in RULES if rule.is_alert} <= set(local)
    assert found.unevaluated == ()


def test_local_rules_read_only_what_is_there() -> None:
    """Faults, series from the server, and what rules above them record."""
    found = plan(METRICS)
    known = {FAULT, "ALERTS", "ALERTS_FOR_STATE"} | {source.name for source in found.sources}
    recorded = {one.rule.name for one in found.local}
    for one in found.local:
        names = {reference.name for reference in references(one.expression)[1]}
        assert names & RECORDED <= known | recorded, one.rule.name


def test_state_settles_within_two_days() -> None:
    assert 3600 < settling_seconds(plan(METRICS).local) < 2 * 86400
