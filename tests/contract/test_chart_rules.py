"""The rules that the chart renders are those of `nodevitals rules render` for the same values."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import helm_python as helm
import jsonschema
import pytest
import yaml
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from nodevitals.commands.rules.alert_labels import label_sets, recorded_faults, severities
from nodevitals.commands.rules.render import write
from nodevitals.commands.rules.site.checks import MUTED_BY, parse_values
from nodevitals.commands.rules.site.pack import read_pack
from nodevitals.commands.rules.site.pools import pool_problem
from nodevitals.commands.rules.site.rendering import render
from testbed.charts import load_all, of_kind
from testbed.charts import render as render_chart
from testbed.node import ROOT
from testbed.pack import promtool
from testbed.sitevalues import VALUES

PACK = read_pack(ROOT / "rules")
POOLED = sorted(name for name in PACK.thresholds if not pool_problem(name, PACK.rules))
FAULTS = recorded_faults(PACK.rules)
SEVERITIES = {
    key: found
    for rule in PACK.alerts
    for found in [severities(label_sets(rule, FAULTS))]
    for key in (rule.name, *([f"{rule.name}/{found[0]}"] if len(found) == 1 else []))
}
# The quickest tests of the pack.
TEST = "job"
# kubectl apply keeps the object in an annotation of at most so many bytes.
ANNOTATION_LIMIT = 262_144
CRD = json.loads((ROOT / "tests/data/crds/prometheusrule.json").read_text())


def shipped(values: dict[str, Any]) -> dict[str, Any]:
    """Return the groups of each file as `rules render` writes them."""
    text = yaml.safe_dump(values, allow_unicode=True).encode()
    made = render(PACK, parse_values(text, PACK), with_tests=False)
    return {name: load_all(text)[0]["groups"] for name, text in made.items()}


def groups(values: dict[str, Any], **rules: Any) -> dict[str, Any]:
    """Return the groups of each PrometheusRule by the name of its file."""
    chosen = {"kind": "PrometheusRule", "values": values, **rules}
    objects = of_kind(render_chart({"rules": chosen}), "PrometheusRule")
    return {
        one["metadata"]["name"].removeprefix("nodevitals-") + ".yaml": one["spec"]["groups"]
        for one in objects
    }


def comparable(files: dict[str, Any]) -> dict[str, Any]:
    """Return groups without what YAML may change: the end of an expression, the order of the rules
    of pools, the unit of a wait, and how a group without rules is written.
    """
    for found in files.values():
        for group in found:
            group["rules"] = group["rules"] or []
            for rule in group["rules"]:
                rule["expr"] = rule["expr"].strip()
                for key in ("for", "keep_firing_for"):
                    if key in rule:
                        rule[key] = seconds(rule[key])
            if group["name"] == "nodevitals-pool-thresholds":
                group["rules"].sort(key=lambda rule: (rule["expr"], rule["labels"]["threshold"]))
    return files


def seconds(wait: str) -> float:
    units = {"ms": 0.001, "s": 1, "m": 60, "h": 3600, "d": 86400}
    unit = wait.lstrip("0123456789")
    return int(wait.removesuffix(unit)) * units[unit]


WAITS = st.sampled_from(("0s", "90s", "3600s", "5m", "2d", "1500ms"))
LABELS = st.dictionaries(
    st.sampled_from(("team", "tier", "_board")),
    st.sampled_from(("a b", "2", "是", "x:y #")),
    max_size=2,
)


def changes(key: str) -> st.SearchStrategy[dict[str, Any]]:
    """Return what a site may change of an alert."""
    keys: dict[str, st.SearchStrategy[Any]] = {
        "wait": WAITS,
        "keep_firing_for": WAITS,
        "labels": LABELS,
    }
    name = key.partition("/")[0]
    if name not in (*MUTED_BY, *MUTED_BY.values()):
        keys["enabled"] = st.booleans()
        if "none" not in SEVERITIES[key]:
            keys["severity"] = st.sampled_from(("critical", "warning", "info"))
    return st.fixed_dictionaries({}, optional=keys)


def thresholds(names: list[str]) -> st.SearchStrategy[dict[str, float]]:
    return st.dictionaries(
        st.sampled_from(names), st.sampled_from((0, 1, 0.25, 5e-6, 1 / 3)), max_size=6
    )


SITES = st.fixed_dictionaries(
    {},
    optional={
        "job": st.sampled_from(("agents.v2", "123", "gpu/agents", "a")),
        "runbook_base": st.sampled_from(("https://wiki.example.org/a#b/", "http://x//")),
        "profile": st.sampled_from(("small", "large")),
        "labels": LABELS,
        "thresholds": thresholds(sorted(PACK.thresholds)),
        "pools": st.dictionaries(
            st.sampled_from(("train", 'a "b"', "推理")),
            st.fixed_dictionaries({"thresholds": thresholds(POOLED)}),
            max_size=2,
        ),
        "alerts": st.lists(st.sampled_from(sorted(SEVERITIES)), max_size=12, unique=True).flatmap(
            lambda keys: st.fixed_dictionaries({key: changes(key) for key in keys})
        ),
    },
)


# A failure names its rule: nothing needs to be shrunk, which takes minutes.
@settings(max_examples=5, deadline=None, derandomize=True, phases=[Phase.generate])
@given(site=SITES)
def test_values_change_the_rules_as_rules_render_does(site: dict[str, Any]) -> None:
    assert comparable(groups(site)) == comparable(shipped(site))


@pytest.mark.proof("rendered")
@settings(max_examples=100, deadline=None, derandomize=True, phases=[Phase.generate])
@given(site=SITES)
def test_every_value_changes_the_rules_as_rules_render_does(site: dict[str, Any]) -> None:
    assert comparable(groups(site)) == comparable(shipped(site))


@pytest.mark.parametrize(
    "values",
    [
        "{}",
        VALUES,
        "alerts: {FilesystemSpaceLow/warning: {severity: info}}",
        "{profile: large, alerts: {MountContentMismatch: {severity: critical}}}",
        "alerts: {FleetIncident: {enabled: false}, InsideFleetIncident: {enabled: false}}",
        "pools: {a: {thresholds: {samples_share: 0.5}}, b: {thresholds: {cpu_share: 0.5}}}",
    ],
)
def test_known_values(values: str) -> None:
    site = yaml.safe_load(values)
    assert comparable(groups(site)) == comparable(shipped(site))


def test_all_severities_of_all_alerts() -> None:
    for severity in ("critical", "warning", "info"):
        keys = [key for key in SEVERITIES if "/" not in key and "none" not in SEVERITIES[key]]
        site = {"alerts": {key: {"severity": severity} for key in keys if key not in MUTED_BY}}
        assert comparable(groups(site)) == comparable(shipped(site))


def test_every_object_is_a_prometheus_rule_that_an_operator_selects() -> None:
    rules: dict[str, Any] = {"kind": "PrometheusRule", "namespace": "other"}
    rules |= {"labels": {"release": "kps"}, "annotations": {"a": "b"}}
    objects = of_kind(render_chart({"rules": rules}), "PrometheusRule")
    assert len(objects) == len(PACK.files)
    for one in objects:
        jsonschema.validate(one, CRD)
        assert one["metadata"]["labels"]["release"] == "kps"
        assert one["metadata"]["annotations"] == {"a": "b"}
        assert one["metadata"]["namespace"] == "other"
        assert len(json.dumps(one)) < ANNOTATION_LIMIT


def test_a_file_can_be_left_out_and_all_of_them() -> None:
    some = groups({}, files={"npu-exporter": False, "fleet": True})
    assert comparable(some) == {
        name: found
        for name, found in comparable(shipped({})).items()
        if name != "npu-exporter.yaml"
    }
    assert groups({}, kind="none") == {}


def config_map(values: dict[str, Any]) -> dict[str, str]:
    """Return the files of the ConfigMap."""
    objects = render_chart({"rules": {"kind": "ConfigMap", "values": values}})
    maps = of_kind(objects, "ConfigMap")
    [one] = [each for each in maps if each["metadata"]["name"] == "nodevitals-rules"]
    files: dict[str, str] = one["data"]
    return files


def test_the_config_map_is_what_prometheus_reads(tmp_path: Path) -> None:
    """Its rules pass the tests of the pack, rewritten for the site as `rules render` does."""
    site = yaml.safe_load(VALUES)
    files = config_map(site)
    assert sum(map(len, files.values())) < 2**20
    values = parse_values(VALUES.encode(), PACK)
    write(tmp_path, render(PACK, values, with_tests=True))
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    paths = [str(tmp_path / name) for name in files]
    status, output = promtool("check", "rules", "--lint=all", "--lint-fatal", *paths)
    assert status == 0, output
    status, output = promtool("test", "rules", str(tmp_path / f"tests/{TEST}.yaml"))
    assert status == 0, output


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ("thresholds: {cpu_shar: 1}", "additional properties 'cpu_shar' not allowed"),
        ("thresholds: {cpu_share: 2}", "/rules/values/thresholds/cpu_share': maximum: got 2"),
        ("alerts: {NodeCpuHihg: {wait: 5m}}", "additional properties 'NodeCpuHihg' not allowed"),
        ("alerts: {NodeCpuHigh: {wait: 1.5h}}", "NodeCpuHigh/wait': '1.5h' does not match"),
        ("alerts: {Watchdog: {severity: info}}", "additional properties 'severity' not allowed"),
        ("alerts: {MountHung/warning: {wait: 5m}}", "'MountHung/warning' not allowed"),
        ("pools: {a: {thresholds: {fleet_nodes: 2}}}", "'fleet_nodes' not allowed"),
        ("labels: {pod: x}", "invalid propertyName 'pod'"),
        ("labels: {team: '{{ x }}'}", "/rules/values/labels/team': 'not' failed"),
        ("job: a b", "/rules/values/job': 'a b' does not match pattern"),
        (
            "alerts: {FleetIncident/critical: {enabled: false}}",
            "InsideFleetIncident would go on muting the alerts of its nodes: disable it as well",
        ),
    ],
)
def test_a_value_that_does_nothing_is_refused(values: str, message: str) -> None:
    with pytest.raises(helm.HelmError, match=re.escape(message)):
        groups(yaml.safe_load(values))


def test_the_monitor_sets_the_job_that_the_rules_select() -> None:
    values = {"monitor": {"kind": "PodMonitor"}, "rules": {"values": {"job": "agents.v2"}}}
    [monitor] = of_kind(render_chart(values), "PodMonitor")
    [endpoint] = monitor["spec"]["podMetricsEndpoints"]
    jobs = [one for one in endpoint["relabelings"] if one.get("targetLabel") == "job"]
    assert [one["replacement"] for one in jobs] == ["agents.v2"]


def test_a_severity_in_the_name_leaves_rules_with_several_severities_alone() -> None:
    site = {"alerts": {"FilesystemSpaceLow/warning": {"severity": "info"}}}
    rules = [rule for group in groups(site)["mount.yaml"] for rule in group["rules"]]
    found = [rule["labels"] for rule in rules if rule.get("alert") == "FilesystemSpaceLow"]
    assert found == [{"scope": "fleet"}, {"severity": "info", "fault_severity": "warning"}]
