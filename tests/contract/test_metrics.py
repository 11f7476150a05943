"""What the exporter exposes is what it declares, what the docs say, and what the rules use."""

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
from testbed.node import ROOT, Node, run, wait_until
from testbed.servers import BINARIES

RULES = sorted((ROOT / "rules").glob("*.yaml"))


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Node]:
    """Return an agent with every shipped probe, as users run it."""
    folder = tmp_path_factory.mktemp("contract")
    config = {
        "labels": {"rack": "r1"},
        "defaults": {"interval": "500ms"},
        "probes": {"mounts": {"targets": [{"path": str(folder / "disk"), "access": "write"}]}},
    }
    (folder / "disk").mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "disk", folder / "disk"], check=True)
    with Node(folder, config, PYTHONPATH=str(ROOT / "exporter")) as running:
        wait_until(lambda: running.value("nodevitals_node_cpu_utilization_ratio") is not None)
        yield running
    subprocess.run(["umount", "-l", folder / "disk"], check=True)


def test_promtool_has_nothing_to_say(node: Node) -> None:
    done = subprocess.run(
        [BINARIES / "promtool", "check", "metrics"],
        input=node.get(Accept="text/plain").text,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_an_openmetrics_parser_accepts_the_other_format(node: Node) -> None:
    text = node.get(Accept="application/openmetrics-text").text
    families = list(parse_openmetrics(text))  # type: ignore[no-untyped-call]
    assert len(families) == len({family.name for family in families}) > 30


def test_everything_exposed_is_declared_with_its_kind_and_labels(node: Node) -> None:
    declared = catalogue.all_families()
    for name, pairs in node.samples():
        family = declared[name]
        if family is not catalogue.NODE_INFO:
            assert {label for label, _ in pairs} <= set(family.labels)


def test_a_probe_fills_the_families_it_declares_on_a_machine_that_has_them(node: Node) -> None:
    """Memory controllers and NVMe are not everywhere; an expectation needs a configured one."""
    rare = ("memory_errors", "nvme", "mount_as_expected", "oom_kills")
    exposed = {name for name, _ in node.samples()}
    for kind in probes.registered().values():
        if kind.name == "misbehave":
            continue
        for family in kind.families:
            assert family.name in exposed or any(word in family.name for word in rare)


def test_the_catalogue_in_the_docs_is_fresh() -> None:
    made = run("metrics", "--format", "markdown", PYTHONPATH=str(ROOT / "exporter")).stdout
    assert (ROOT / "docs/METRICS.md").read_text() == made, "make generate"


def alerts() -> list[dict[str, Any]]:
    """Return every alert of the shipped rules."""
    return [
        rule
        for file in RULES
        for group in yaml.safe_load(file.read_text())["groups"]
        for rule in group["rules"]
        if "alert" in rule
    ]


def test_rules_use_only_families_that_exist() -> None:
    declared = catalogue.all_families()
    for alert in alerts():
        for name in re.findall(r"\bnodevitals_\w+", alert["expr"]):
            assert name in declared, alert["alert"]


def test_every_alert_says_what_how_bad_and_what_to_do() -> None:
    actions = {"summary", "description", "action"}
    for alert in alerts():
        assert set(alert["labels"]) == {"severity", "component", "fault", "scope"}
        assert alert["labels"]["severity"] in ("critical", "warning", "info", "none")
        assert set(alert["annotations"]) == actions
        assert "$value" not in str(alert["labels"])


def test_every_alert_is_tested_firing_and_not_firing() -> None:
    firing: set[str] = set()
    silent: set[str] = set()
    for file in (ROOT / "rules/tests").glob("*.yaml"):
        for test in yaml.safe_load(file.read_text())["tests"]:
            for case in test.get("alert_rule_test", ()):
                (firing if case.get("exp_alerts") else silent).add(case["alertname"])
    names = {alert["alert"] for alert in alerts()}
    assert firing == names
    assert silent == names - {"Watchdog"}


def test_each_alert_has_a_route() -> None:
    for severity in ("critical", "warning"):
        done = subprocess.run(
            [
                BINARIES / "amtool",
                "config",
                "routes",
                "test",
                f"--config.file={ROOT / 'alertmanager/alertmanager.yaml'}",
                f"severity={severity}",
            ],
            capture_output=True,
            text=True,
            check=True,
            env={**os.environ, "HOME": "/nonexistent"},
        )
        assert done.stdout.strip() == "operators"


def test_every_flag_of_serve_is_in_the_readme() -> None:
    """Something declared in code that is missing from the docs is a failure."""
    text = (ROOT / "README.md").read_text()
    for flag in re.findall(r"--[a-z]+\.[a-z.-]+", run("serve", "--help").stdout):
        assert flag in text, flag
