"""Every alert on a device or a node is a confirmed fault with a device and a response.

The alerts are those that the rule tests expect, with their labels: what a rule adds is here as
well. docs/automation.md lists the values of the labels.
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from nodevitals.commands.rules.expression import selectors
from nodevitals_hub.repair import startable
from testbed.node import ROOT
from testbed.servers import BINARIES

RULES = ROOT / "rules"
PAGE = (ROOT / "docs/automation.md").read_text()
REPAIRS = ("drain", "reset_device", "reboot_node", "replace")
# Critical, but running jobs go on until the node is idle.
JOBS_GO_ON = ("accelerators_missing", "row_remap_failure", "sram_worn_out")
Labels = dict[str, str]


def documents(folder: Path) -> Iterator[Any]:
    """Yield each YAML file of a folder."""
    for file in sorted(folder.glob("*.yaml")):
        yield yaml.safe_load(file.read_text())


def rules() -> list[dict[str, Any]]:
    """Return every shipped rule."""
    return [
        rule for file in documents(RULES) for group in file["groups"] for rule in group["rules"]
    ]


def faults_with_an_alert() -> set[str]:
    """Return the faults of devices and nodes that an alert is on."""
    named = "|".join(
        names
        for rule in rules()
        if "alert" in rule
        for names in re.findall(r'nodevitals:fault\{[^}]*fault=~?"([a-z_|]+)"', rule["expr"])
    ).split("|")
    return {
        rule["labels"]["fault"]
        for rule in rules()
        if rule.get("record") == "nodevitals:fault"
        and rule["labels"].get("scope") in ("device", "node")
        and rule["labels"]["fault"] in named
    }


def expected_alerts() -> dict[tuple[str, ...], Labels]:
    """Return the labels of one alert of each fault, severity and action in the rule tests."""
    found: dict[tuple[str, ...], Labels] = {}
    for file in documents(RULES / "tests"):
        for case in (case for test in file["tests"] for case in test.get("alert_rule_test", [])):
            for alert in case.get("exp_alerts") or []:
                labels: Labels = {"alertname": case["alertname"], **alert["exp_labels"]}
                automated = labels["scope"] in ("device", "node") and labels["component"] != "job"
                if automated and labels["severity"] != "none":
                    key = (labels["fault"], labels["severity"], labels["action"])
                    found.setdefault(key, labels)
    return found


ALERTS = expected_alerts()


def device_id(labels: Labels) -> str:
    """Return what docs/automation.md says of `device_id`."""
    if labels["scope"] == "node":
        return labels.get("mountpoint", "")
    if "device" in labels and "port" in labels:
        return f"{labels['device']}/{labels['port']}"
    names = ("uuid", "pci_bus_id", "device", "member", "interface")
    return next((labels[name] for name in names if name in labels), "")


def response(labels: Labels) -> tuple[str, str]:
    """Return what docs/automation.md says of `service` and `action`."""
    critical, repair = labels["severity"] == "critical", labels["action"] in REPAIRS
    now = critical and repair and labels["fault"] not in JOBS_GO_ON
    service = "drain_now" if now else "drain_when_idle" if critical or repair else "keep"
    return service, "investigate" if labels["action"] == "drain" else labels["action"]


def selector(name: str, labels: Labels) -> str:
    """Return a series as promtool reads it."""
    pairs = ", ".join(f'{label}="{value}"' for label, value in labels.items() if value)
    return f"{name}{{{pairs}}}"


def promtool(folder: Path, test: dict[str, Any], *files: str) -> None:
    """Run one promtool test over rule files."""
    document = {
        "rule_files": [str(RULES / name) for name in files],
        "evaluation_interval": "15s",
        "group_eval_order": ["first", "nodevitals-automation"],
        "tests": [{"interval": "15s", **test}],
    }
    path = folder / "test.yaml"
    path.write_text(yaml.safe_dump(document))
    command = [str(BINARIES / "promtool"), "test", "rules", str(path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def values_in_page(label: str) -> set[str]:
    """Return the closed list of a label in docs/automation.md."""
    row = re.search(rf"^\| `{label}` \|(.*)\|$", PAGE, re.MULTILINE)
    assert row is not None, f"docs/automation.md has no row for {label}"
    return set(re.findall(r"`([a-z_]+)`", row[1])) | {""}


def test_every_fault_with_an_alert_is_tested_with_its_labels() -> None:
    missing = faults_with_an_alert() - {fault for fault, _, _ in ALERTS}
    assert not missing, "no rule test expects an alert on these faults"
    assert len(ALERTS) >= 50


@pytest.mark.parametrize("labels", ALERTS.values(), ids=lambda labels: labels["alertname"])
def test_the_hub_knows_what_each_fault_takes_from_its_node(labels: Labels) -> None:
    """A repair for a fault that takes nothing never starts: repair/startable.py refuses it."""
    known = startable._SHIPPED[labels["fault"]]
    service, action = response(labels)
    assert service in known.services[action]
    assert service in known.possible[action]


# Recorded without a job, and read by what acts: a pod can expose them with a job only.
WITHOUT_JOB = ("fault_confirmed", "fault_confirmed_value", "threshold")
ALERTS_WITHOUT_JOB = ("FleetIncident", "InsideFleetIncident", "NodeMaintenance")


def test_no_rule_believes_what_a_pod_exposes() -> None:
    """Series without a job are selected with job="", other alerts with the rules' job or none."""
    bad = []
    for rule in rules():
        for selector in selectors(str(rule["expr"])):
            matchers = {one.label: one.operator + one.value for one in selector.matchers}
            if selector.name in {f"nodevitals:{name}" for name in WITHOUT_JOB}:
                wanted = "="
            elif selector.name == "ALERTS":
                own = matchers.get("alertname", "").lstrip("=") in ALERTS_WITHOUT_JOB
                wanted = "=" if own else "=~|nodevitals"
            else:
                continue
            if matchers.get("job") != wanted:
                bad.append((rule.get("record") or rule["alert"], selector))
    assert bad == []


def test_every_alert_is_a_confirmed_fault_of_its_device(tmp_path: Path) -> None:
    series, expected = [], []
    for number, labels in enumerate(ALERTS.values()):
        place = {"cluster": "c", "instance": f"n{number}"}
        alert = {**labels, **place, "alertstate": "firing"}
        series.append({"series": selector("ALERTS", alert), "values": "1x9"})
        if labels["fault"] == "nvme_failed":
            disk = {**place, "job": "nodevitals", "device": labels["device"]}
            live = selector("nodevitals_node_nvme_live", disk)
            info = selector("nodevitals_node_nvme_info", {**disk, "serial": "EX1"})
            series += [{"series": live, "values": "0x9"}, {"series": info, "values": "1x9"}]
        if labels.get("drill"):
            continue  # nothing acts on it
        service, action = response(labels)
        found = {
            **{name: labels[name] for name in ("component", "fault", "severity", "scope")},
            **place,
            "vendor": labels.get("vendor", ""),
            "incident": "false",
            "device_id": "EX1" if labels["fault"] == "nvme_failed" else device_id(labels),
            "service": service,
            "action": action,
        }
        expected.append({"labels": selector("nodevitals:fault_confirmed", found), "value": 1})
    query = {"expr": "nodevitals:fault_confirmed", "eval_time": "30s", "exp_samples": expected}
    promtool(tmp_path, {"input_series": series, "promql_expr_test": [query]}, "automation.yaml")


@pytest.mark.parametrize("labels", ALERTS.values(), ids="-".join)
def test_labels_are_of_the_documented_lists(labels: Labels) -> None:
    if labels["scope"] == "device":
        assert device_id(labels), "a fault of a device without a label that identifies it"
    service, action = response(labels)
    for name, value in (("service", service), ("action", action)):
        assert value in values_in_page(name) - {""}
    for name in ("component", "severity", "scope", "vendor"):
        assert labels.get(name, "") in values_in_page(name), name
    if labels["fault"] in JOBS_GO_ON:
        assert f"`{labels['fault']}`" in PAGE


def test_hundred_nodes_with_several_faults_each(tmp_path: Path) -> None:
    """Also an expression that fails for one node would fail here for all."""
    series = []
    for number in range(100):
        node = {"job": "nodevitals", "cluster": "c", "instance": f"n{number}"}
        port = {**node, "device": "mlx5_0", "port": "1", "link_layer": "InfiniBand"}
        for name, labels, value in (
            ("nodevitals_accelerator_up", {"vendor": "nvidia", "device": "0", "uuid": "A"}, 0),
            ("nodevitals_accelerator_up", {"vendor": "nvidia", "device": "1", "uuid": "B"}, 0),
            ("nodevitals_rdma_port_up", port, 0),
            ("nodevitals_rdma_port_expected_rate_bytes_per_second", port, 50e9),
            ("nodevitals_mount_present", {"mountpoint": "/data", "source": "f:/"}, 0),
            ("up", {}, 1),
        ):
            text = selector(name, {**node, **labels})
            series.append({"series": text, "values": f"{value}x16"})
    one_each = {"accelerator_lost": 200, "rdma_port_down": 100, "mount_missing": 100}
    key = "count by (cluster, instance, fault, device_id)"
    queries = [
        {
            "expr": "count by (fault) (nodevitals:fault_confirmed)",
            "eval_time": "4m",
            "exp_samples": [
                {"labels": selector("", {"fault": fault}), "value": count}
                for fault, count in one_each.items()
            ],
        },
        {
            "expr": f"{key} (nodevitals:fault_confirmed) > 1"
            f" or {key} (nodevitals:fault_confirmed_value) > 1",
            "eval_time": "4m",
            "exp_samples": [],
        },
        {
            "expr": "count(nodevitals:fault_confirmed_value)",
            "eval_time": "4m",
            "exp_samples": [{"labels": "{}", "value": 400}],
        },
    ]
    files = ("thresholds.yaml", "accelerator.yaml", "rdma.yaml", "mount.yaml", "automation.yaml")
    promtool(tmp_path, {"input_series": series, "promql_expr_test": queries}, *files)
