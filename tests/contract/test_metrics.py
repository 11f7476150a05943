"""Exposed series, declared families and shipped rules agree."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterator
from typing import Any

import pytest
import yaml
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics

from nodevitals import catalogue, probes
from nodevitals.probes.common.accelerators import ACTIONS
from testbed import golden
from testbed.node import ROOT, Node
from testbed.servers import BINARIES
from testbed.wholenode import whole_node

RULES = sorted((ROOT / "rules").glob("*.yaml"))


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Node]:
    """The agent of a machine with all hardware and with faults."""
    with whole_node(tmp_path_factory.mktemp("contract")) as running:
        yield running


def test_promtool_accepts_the_text_format(node: Node) -> None:
    done = subprocess.run(
        [BINARIES / "promtool", "check", "metrics"],
        input=node.get(Accept="text/plain").text,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_openmetrics_parser_accepts_the_openmetrics_format(node: Node) -> None:
    text = node.get(Accept="application/openmetrics-text").text
    families = list(parse_openmetrics(text))  # type: ignore[no-untyped-call]
    assert len(families) == len({family.name for family in families}) > 30


def test_every_exposed_series_is_declared_with_its_labels(node: Node) -> None:
    declared = catalogue.all_families()
    for name, pairs in node.samples():
        family = declared[name]
        if family is not catalogue.NODE_INFO:
            further = {"tenant"} if family.open else set()
            assert {label for label, _ in pairs} <= {*family.labels, *further}


def test_the_exposition_is_the_golden_one(node: Node) -> None:
    """Each family, its series and their values. `make golden` writes what is exposed now."""
    found = golden.settled_differences(node)
    lines = [line for one in found.values() for line in one]
    assert found == {}, "\n".join(
        ["differ: " + ", ".join(found), *lines[:40], "", node.log()[-2000:]]
    )


def test_the_golden_exposition_has_every_family_of_its_probes() -> None:
    """Others are tested elsewhere: fabric on eight nodes, selfcheck on an idle node."""
    exposed = golden.read()
    kinds = [probes.registered()[name] for name in golden.covered(exposed)]
    declared = {family.name for kind in kinds for family in kind.families}
    # The CPU times in the simulated /proc do not change.
    missing = declared - exposed.keys() - {"nodevitals_node_cpu_utilization_ratio"}
    assert missing == set(), "give them a sample in testbed/wholenode.py, then: make golden"


def rules() -> list[dict[str, Any]]:
    """Return every shipped rule."""
    return [
        rule
        for file in RULES
        for group in yaml.safe_load(file.read_text())["groups"]
        for rule in group["rules"]
    ]


def test_rules_that_record_a_declared_family_have_its_labels() -> None:
    declared = {**catalogue.all_families(), **catalogue.hub_families()}
    for rule in rules():
        name = rule.get("record", ":")
        if ":" not in name:
            family = declared[name]
            by = set(re.findall(r"\w+", rule["expr"].partition("by (")[2].partition(")")[0]))
            labels = (by | set(rule["labels"])) - {"cluster", "instance", "job"}
            assert labels == set(family.labels), rule


def test_every_fault_has_the_labels_of_the_taxonomy() -> None:
    """Dashboards and the hub select faults by these labels."""
    wanted = {"fault", "component", "severity", "scope", "action"}
    found = 0
    for rule in rules():
        if rule.get("record") == "nodevitals:fault":
            found += 1
            # These labels come from the metric itself.
            with_action = ("recovery_needed", "recovery_when_idle", "nvidia_xid", "npu_fault_code")
            of_metric = {"action"} if rule["labels"]["fault"] in with_action else set()
            assert set(rule["labels"]) | of_metric == wanted, rule
            assert rule["labels"].get("action", "none") in ACTIONS
            assert rule["labels"]["severity"] in ("critical", "warning", "info")
    assert found > 40


def test_every_fault_has_a_name_in_chinese() -> None:
    text = (ROOT / "alertmanager/templates/nodevitals.zh.tmpl").read_text()
    for rule in rules():
        fault = rule.get("labels", {}).get("fault", "none")
        assert fault == "none" or f'eq . "{fault}"' in text, fault


def test_every_runbook_belongs_to_an_alert_and_has_four_sections() -> None:
    names = {rule["alert"] for rule in rules() if "alert" in rule}
    for page in (ROOT / "rules/runbooks").glob("*.md"):
        assert page.stem in names
        text = page.read_text()
        for section in ("Meaning", "Impact", "Diagnosis", "Mitigation"):
            assert f"\n## {section}\n" in text, page
    for page in (ROOT / "rules/runbooks/zh").glob("*.md"):
        assert page.stem in names
        for section in ("含义", "影响", "诊断", "处置"):
            assert f"\n## {section}\n" in page.read_text(), page


@pytest.mark.parametrize(
    ("labels", "receivers"),
    [
        (["severity=critical"], "on-call,second-tier,third-tier,chat"),
        (["severity=warning", "component=rdma"], "storage-and-network"),
        (["severity=warning", "component=accelerator"], "hardware"),
        (["severity=info", "component=node"], "null"),
        (["severity=info", "owner=alice"], "job-owner"),
        (["severity=none", "alertname=InsideFleetIncident"], "null"),
        (["severity=none", "alertname=Watchdog"], "dead-mans-switch"),
    ],
)
def test_alerts_are_routed_to_receivers(labels: list[str], receivers: str) -> None:
    config = f"--config.file={ROOT / 'alertmanager/alertmanager.yaml'}"
    done = subprocess.run(
        [BINARIES / "amtool", "config", "routes", "test", config, *labels],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "HOME": "/nonexistent"},
    )
    assert done.stdout.strip() == receivers
