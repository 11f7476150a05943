"""Every alert has a reason for its severity and reaches someone; the page of alerts is fresh."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

import nodevitals
from nodevitals.commands.rules.alert_labels import label_sets, recorded_faults
from nodevitals.commands.rules.alerts_page import (
    PROFILES,
    alerts_page,
    routed_labels,
    runbook_of,
    without_reason,
)
from nodevitals.commands.rules.routes import deliveries
from nodevitals.commands.rules.site.pack import read_pack
from nodevitals.commands.rules.site.values_example import EXAMPLE, example_values
from nodevitals.commands.shipped import shipped
from testbed.alerting.timeline import FOR_DASHBOARDS
from testbed.node import ROOT

PACK = read_pack(ROOT / "rules")
ROUTES: dict[str, Any] = yaml.safe_load((ROOT / "alertmanager/alertmanager.yaml").read_text())


def test_every_runbook_says_why_the_alert_is_as_severe_as_it_is() -> None:
    assert set(without_reason(PACK)) == set()
    assert all(runbook_of(rule) in PACK.runbooks for rule in PACK.alerts)


@pytest.mark.parametrize("profile", PROFILES)
def test_every_page_and_every_ticket_reaches_someone(profile: str) -> None:
    faults = recorded_faults(PACK.rules)
    seen = set()
    for rule in PACK.alerts:
        for labels in routed_labels(rule, label_sets(rule, faults), profile):
            severity = labels["severity"]
            assert severity in ("critical", "warning", "info", "none"), rule.name
            found = [one.receiver for one in deliveries(ROUTES, labels)]
            seen.add(severity)
            if severity in ("critical", "warning"):
                assert found, rule.name
                assert "null" not in found, rule.name
    assert seen == {"critical", "warning", "info", "none"}


def test_the_page_of_alerts_is_fresh() -> None:
    page = (ROOT / "docs/alerts.md").read_text()
    assert alerts_page(PACK, ROUTES, page) == page, "make generate"


def test_the_example_of_the_values_file_is_fresh() -> None:
    assert (ROOT / "rules" / EXAMPLE).read_text() == example_values(PACK), "make generate"


def test_the_wheel_carries_the_rules_where_the_command_looks_for_them() -> None:
    _, _, included = (ROOT / "pyproject.toml").read_text().partition("wheel.force-include]\n")
    assert included.startswith('"rules" = "nodevitals/pack/rules"\n')
    package = Path(nodevitals.__file__).parent
    assert not (package / "pack").exists(), "a copy would go stale"
    assert shipped("rules") == ROOT / "rules"


def test_files_for_dashboards_have_no_alert_and_no_alert_reads_them() -> None:
    """Replays leave them out."""
    texts = {path.name: path.read_text() for path in (ROOT / "rules").glob("*.yaml")}
    assert set(texts) >= FOR_DASHBOARDS
    recorded = set()
    for name in FOR_DASHBOARDS:
        rules = [r for group in yaml.safe_load(texts.pop(name))["groups"] for r in group["rules"]]
        assert [rule for rule in rules if "alert" in rule] == [], name
        recorded |= {rule["record"] for rule in rules}
    for name, text in texts.items():
        assert set(re.findall(r"nodevitals:[\w:]+", text)) & recorded == set(), name
