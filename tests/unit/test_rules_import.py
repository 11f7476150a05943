"""`nodevitals rules import`: RepairManager's files as rules and an Alertmanager configuration."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from nodevitals import catalogue
from nodevitals.commands.rules.repair_manager.convert import Converted, convert
from nodevitals.commands.rules.repair_manager.rules import map_metrics
from nodevitals.commands.rules.repair_manager.settings import ALERTMANAGER_OUT, RULES_OUT
from nodevitals.document import DocumentError
from testbed.node import run
from testbed.servers import BINARIES

CONFIG = """
cluster_name: mill-7
repair-manager:
  alerts_enabled: true
  reminders_enabled: true
  reminder_wait_time: 7200
  alert_job_owners: true
  cordon_dry_run: true
  rule_wait_time: 60
  smtp:
    smtp_url: smtp://mail.mill.example:25
    login: repair
    password: hunter2
    sender: repair@mill.example
    receiver: [night@mill.example, day@mill.example]
  cpu_share: 90
  step: 1m
"""
RULE_CONFIG = """
rule_wait_time: {{cnf["repair-manager"]["rule_wait_time"]}}
rules: [EccRule, CpuRule]
"""
ECC = """
ecc_rule:
  query_expression: nvidiasmi_ecc_error_count{cluster="{{ cnf['cluster_name'] }}"} > 0
  step: {{cnf["repair-manager"]["step"]}}
  interval: 5
  percent_threshold: 0
  severity: critical
  days_until_reboot: 5
"""
ALERTS = """
rules:
  - name: cpu_usage
    query_expression: 100 * node_load1 / node_cpus > {{cnf["repair-manager"]["cpu_share"]}}
    step: 60
    interval: 10m
    percent_threshold: {{cnf["repair-manager"]["cpu_share"]}}
    severity: page
  - name: memory_usage
    query_expression: node_memory_MemAvailable_bytes / node_memory_MemTotal_bytes < 0.2
    interval: 10m
    percent_threshold: 90
"""
TEXTS = {
    "config.yaml": CONFIG,
    "rule-config.yaml": RULE_CONFIG,
    "ecc-config.yaml": ECC,
    "rule-alerts.yaml": ALERTS,
}


def converted(**changed: str) -> Converted:
    texts = TEXTS | {name.replace("_", "-") + ".yaml": text for name, text in changed.items()}
    return convert({name: text.encode() for name, text in texts.items()})


def alerts(files: dict[str, str]) -> dict[str, Any]:
    (group,) = yaml.safe_load(files[RULES_OUT])["groups"]
    return {rule["alert"]: rule for rule in group["rules"]} | {"interval": group["interval"]}


def settings(config: str) -> dict[str, Any]:
    text = convert({"config.yaml": config.encode()}).files[ALERTMANAGER_OUT]
    document: dict[str, Any] = yaml.safe_load(text)
    return document


def test_rules_have_the_values_of_their_references() -> None:
    rules = alerts(converted().files)
    assert rules.keys() == {"EccRule", "CpuUsage", "interval"}
    assert rules["interval"] == "60s"
    ecc, cpu = rules["EccRule"], rules["CpuUsage"]
    assert ecc["expr"] == (
        'count_over_time((\nnvidiasmi_ecc_error_count{cluster="mill-7"} > 0\n)'
        "[299999ms:60000ms]) / 5 > 0"
    )
    assert cpu["expr"].startswith("count_over_time((\n100 * node_load1 / node_cpus > 90\n)")
    assert cpu["expr"].endswith("[599999ms:60000ms]) / 10 > 0.9")
    assert (ecc["labels"]["severity"], cpu["labels"]["severity"]) == ("critical", "warning")
    assert ecc["labels"]["cluster"] == "mill-7"


def test_every_key_is_reported() -> None:
    keys = {(key.file, key.path): key for key in converted().keys}
    lost = {place: key.why for place, key in keys.items() if not key.became}
    smtp = "repair-manager.smtp"
    assert lost == {
        ("config.yaml", "repair-manager.cordon_dry_run"): (
            "rules and Alertmanager cordon no node: set the dry run of what cordons"
        ),
        ("config.yaml", f"{smtp}.password"): (
            "passwords are read from files: write it to /etc/alertmanager/secrets/smtp-password"
        ),
        ("rule-config.yaml", "rules"): (
            "not needed: every rule with a query_expression is converted"
        ),
        ("ecc-config.yaml", "ecc_rule.days_until_reboot"): "sampled rules have no such key",
        ("rule-alerts.yaml", "rules[0].severity"): "'page' is no severity here; warning is used",
        **{
            ("rule-alerts.yaml", f"rules[1].{key}"): "not a valid rule: no step"
            for key in ("name", "query_expression", "interval", "percent_threshold")
        },
    }
    assert len(keys) == 32
    assert (
        keys["config.yaml", "repair-manager.cpu_share"].became
        == "the value of references in other files"
    )
    assert [place for place, key in keys.items() if key.rule_lost] == [
        ("rule-alerts.yaml", "rules[1].query_expression")
    ]


# The four files in the form in which the manual prints them; every setting has another value.
PRINTED = {
    "config.yaml": """
repair-manager:
  cluster_name: "mill-9"
  ecc_rule:
    cordon_dry_run: True
  alert:
    smtp_url: mail.mill.example
    login: repair
    password: hunter2
    sender: repair@mill.example
    receiver: ["night@mill.example"]
  enable_custom_registry_secrets: True
""",
    "ecc-config.yaml": """
cordon_dry_run: {{cnf['repair-manager']['ecc_rule']['cordon_dry_run']}}
prometheus:
  ip: {{cnf['repair-manager']['prometheus-ip']}}
  port: {{cnf['repair-manager']['prometheus-port']}}
metrics:
  - query_expression: 'nvidiasmi_ecc_error_count{type="volatile_double"}>0'
    step: 1m
    interval: 15 # minutes
    percent_threshold: 80
    name: nvidiasmi_ecc_error_count
  - query_expression: 'node_load1 /
    2 > 0.7'
    step: 4m
    interval: 15 # minutes
    percent_threshold: 50
    name: "load more than 70%"
""",
    "rule-alerts.yaml": """
ecc_rule:
  alerts_enabled: True
  reminders_enabled: True
  reminder_wait_time: 43200 # seconds
  alert_job_owners: True
cache-ttl: 300 # seconds
""",
    "rule-config.yaml": """
---
rules:
  ecc_rule:
    module_name : rules.ecc_rule
    class_name : ECCRule

rule_wait_time: 20 # seconds

cluster_name: {{cnf['repair-manager']['cluster_name']}}
""",
}


def printed(mapped: bool = False, **changed: str) -> Converted:
    texts = PRINTED | {name.replace("_", "-") + ".yaml": text for name, text in changed.items()}
    return convert({name: text.encode() for name, text in texts.items()}, mapped)


def test_files_as_the_manual_prints_them_are_converted() -> None:
    result = printed()
    rules = alerts(result.files)
    assert rules["interval"] == "20s"
    ecc, load = rules["NvidiasmiEccErrorCount"], rules["LoadMoreThan70"]
    # P is the number of whole steps in the interval: 15 of 1 minute, 3 of 4 minutes.
    assert ecc["expr"].endswith("[899999ms:60000ms]) / 15 > 0.8")
    assert load["expr"].endswith("[719999ms:240000ms]) / 3 > 0.5")
    assert load["annotations"]["summary"] == "load more than 70% on {{ $labels.instance }}"
    assert load["labels"]["cluster"] == "mill-9"
    document = yaml.safe_load(result.files[ALERTMANAGER_OUT])
    assert document["route"]["repeat_interval"] == "43200s"
    mails = {one["name"]: one.get("email_configs", [{}])[0] for one in document["receivers"]}
    assert mails["operators"]["to"] == "night@mill.example"
    assert mails["operators"]["headers"]["Subject"].startswith("[mill-9] ")
    assert mails["job-owner"]["to"] == "{{ .GroupLabels.owner }}@mill.example"


def test_every_key_of_the_printed_files_arrives_or_has_a_reason() -> None:
    keys = printed().keys
    lost = {f"{key.file}: {key.path}": key.why for key in keys if not key.became}
    assert all(lost.values())
    assert "unknown key" not in lost.values()
    assert lost["ecc-config.yaml: prometheus.ip"] == (
        "not needed: Prometheus evaluates the rules itself"
    )
    assert not any(key.rule_lost for key in keys)
    became = {key.path: key.became for key in keys}
    assert became["ecc_rule.alerts_enabled"] == "alertmanager.yaml: alerts are mailed"
    assert became["ecc_rule.reminder_wait_time"] == "alertmanager.yaml: repeat_interval, 43200s"


@pytest.mark.parametrize("receiver", ['[" "]', "[]", "", "null"])
def test_a_receiver_that_is_empty_gets_no_mail(receiver: str) -> None:
    config = PRINTED["config.yaml"].replace('["night@mill.example"]', receiver)
    result = printed(config=config)
    document = yaml.safe_load(result.files[ALERTMANAGER_OUT])
    assert document["receivers"] == [{"name": "null"}]
    (key,) = (key for key in result.keys if key.path == "ecc_rule.alerts_enabled")
    assert key.why == "no receiver: no mail can be sent"


@pytest.mark.parametrize(
    ("old", "ours"),
    [
        (
            'nvidiasmi_ecc_error_count{type="volatile_double"}>0',
            (
                'nodevitals_accelerator_ecc_errors_total{job="nodevitals", kind="uncorrected", '
                'lifetime="volatile"}>0'
            ),
        ),
        (
            "nvidiasmi_utilization_gpu{minor_number='3'} < 5",
            "(100 * nodevitals_accelerator_utilization_ratio{job=\"nodevitals\", device='3'}) < 5",
        ),
        (
            "max(nvidiasmi_temperature) > 80",
            'max(nodevitals_accelerator_temperature_celsius{job="nodevitals"}) > 80',
        ),
        (
            'nvidiasmi_retired_page_count{type="double"} > 1',
            'nodevitals_nvidia_retired_pages{job="nodevitals", cause="double_bit"} > 1',
        ),
    ],
)
def test_metrics_of_the_old_exporter_are_replaced_on_request(old: str, ours: str) -> None:
    text, note = map_metrics(old)
    assert text == ours
    assert "replaced" in note
    labels = re.findall(r"(\w+)(?:=|!=)[\"']", ours)
    for name in re.findall(r"nodevitals_\w+", text):
        assert {*labels} - {"job"} <= {*catalogue.all_families()[name].labels}


@pytest.mark.parametrize(
    "kept",
    [
        "nvidiasmi_attached_gpus > 1",
        'nvidiasmi_ecc_error_count{type=~"volatile.*"} > 0',
        'nvidiasmi_ecc_error_count{type="other"} > 0',
        "nvidiasmi_ecc_error_count > 0",
    ],
)
def test_metrics_without_a_counterpart_are_kept_and_named(kept: str) -> None:
    text, note = map_metrics(kept)
    assert (text, "has no counterpart" in note) == (kept, True)
    (key,) = (
        key
        for key in printed(
            True, ecc_config=PRINTED["ecc-config.yaml"].replace("node_load1 /", f"{kept} or")
        ).keys
        if key.path == "metrics[1].query_expression"
    )
    assert "has no counterpart" in key.became


def test_a_rule_with_a_missing_reference_is_lost() -> None:
    ecc = PRINTED["ecc-config.yaml"].replace("> 0.7", "> {{cnf['repair-manager']['share']}}")
    result = printed(ecc_config=ecc)
    (lost,) = (key for key in result.keys if key.rule_lost)
    assert lost.path == "metrics[1].query_expression"
    assert lost.why == (
        "not a valid rule: {{cnf['repair-manager']['share']}} is not in config.yaml"
    )
    assert "NvidiasmiEccErrorCount" in alerts(result.files)


def test_mail_settings_are_kept() -> None:
    document = settings(CONFIG)
    assert document["global"] == {
        "smtp_smarthost": "mail.mill.example:25",
        "smtp_from": "repair@mill.example",
        "smtp_auth_username": "repair",
        "smtp_auth_password_file": "/etc/alertmanager/secrets/smtp-password",
    }
    assert document["route"]["repeat_interval"] == "7200s"
    to = {one["name"]: one.get("email_configs", [{}])[0].get("to") for one in document["receivers"]}
    assert to == {
        "null": None,
        "operators": "night@mill.example, day@mill.example",
        "job-owner": "{{ .GroupLabels.owner }}@mill.example",
    }


def test_passwords_are_not_repeated() -> None:
    result = converted()
    assert "hunter2" not in str(result)


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("alerts_enabled: true", "alerts_enabled: false", ("null", "7200s", False)),
        ("reminders_enabled: true", "reminders_enabled: false", ("operators", "8760h", True)),
        ("alert_job_owners: true", "alert_job_owners: false", ("operators", "7200s", False)),
        ("reminder_wait_time: 7200", "reminder_wait_time: 36h", ("operators", "129600s", True)),
    ],
)
def test_switches_change_the_route(old: str, new: str, expected: tuple[str, str, bool]) -> None:
    route = settings(CONFIG.replace(old, new))["route"]
    assert (route["receiver"], route["repeat_interval"], "routes" in route) == expected


@pytest.mark.parametrize(
    ("changed", "problem"),
    [
        ({"rule_alerts": "{% if x %}"}, "rule-alerts.yaml:1:"),
        ({"config": "a: ["}, "config.yaml:2:1: not valid YAML"),
    ],
)
def test_what_cannot_be_read_is_an_error(changed: dict[str, str], problem: str) -> None:
    with pytest.raises(DocumentError) as error:
        converted(**changed)
    assert problem in "\n".join(map(str, error.value.problems))


@pytest.mark.parametrize(
    "changed",
    [
        {"ecc_config": 'a: {{cnf["nowhere"]}}'},
        {"ecc_config": 'a: "x {{cnf["cluster_name"]["x"]}} y"'},
        {"config": 'a: {{cnf["b"]}}'},
    ],
)
def test_a_missing_reference_is_reported(changed: dict[str, str]) -> None:
    (key,) = (key for key in converted(**changed).keys if key.path == "a")
    assert key.why.endswith("is not in config.yaml")


def test_the_first_of_two_settings_is_used() -> None:
    twice = CONFIG + "old:\n  receiver: nobody@mill.example\n"
    keys = {key.path: key for key in convert({"config.yaml": twice.encode()}).keys}
    assert keys["old.receiver"].why == "repair-manager.smtp.receiver of config.yaml is used instead"


def test_the_second_rule_of_a_name_is_not_converted() -> None:
    same = ECC.replace("ecc_rule", "cpu-usage")
    rules = alerts(converted(ecc_config=same).files)
    assert "nvidiasmi" in rules["CpuUsage"]["expr"]
    (key,) = (key for key in converted(ecc_config=same).keys if key.path == "rules[0].name")
    assert key.why == "not a valid rule: another rule is named CpuUsage"


def test_prometheus_and_alertmanager_accept_the_written_files(tmp_path: Path) -> None:
    for name, text in TEXTS.items():
        (tmp_path / name).write_text(text)
    done = run("rules", "import", str(tmp_path), "--output", str(tmp_path / "out"))
    assert done.returncode == 1
    assert "rules[1].query_expression: rule lost: not a valid rule: no step" in done.stderr
    assert "Not carried over: 9 of 32 keys." in done.stdout
    assert "hunter2" not in done.stdout
    for tool, action, name in (
        ("promtool", ("check", "rules", "--lint=all", "--lint-fatal"), RULES_OUT),
        ("amtool", ("check-config",), ALERTMANAGER_OUT),
    ):
        command = [str(BINARIES / tool), *action, str(tmp_path / "out" / name)]
        checked = subprocess.run(command, capture_output=True, text=True, check=False)
        assert checked.returncode == 0, checked
    again = run("rules", "import", str(tmp_path), "--output", str(tmp_path / "out"))
    assert again.returncode == 2
    assert "alertmanager.yaml already exists: choose another --output" in again.stderr
    done = run("rules", "import", str(tmp_path), "--output", str(tmp_path / "other"), "--json")
    assert {"file": "config.yaml", "path": "cluster_name"}.items() <= json.loads(done.stdout)[
        0
    ].items()


def test_no_rule_of_the_printed_files_is_lost(tmp_path: Path) -> None:
    for name, text in PRINTED.items():
        (tmp_path / name).write_text(text)
    output = tmp_path / "out"
    done = run("rules", "import", str(tmp_path), "--output", str(output), "--map-metrics")
    assert (done.returncode, done.stderr) == (0, "")
    assert (
        "nvidiasmi"
        not in yaml.safe_load((output / RULES_OUT).read_text())["groups"][0]["rules"][0]["expr"]
    )
    for tool, action, name in (
        ("promtool", ("check", "rules", "--lint=all", "--lint-fatal"), RULES_OUT),
        ("amtool", ("check-config",), ALERTMANAGER_OUT),
    ):
        command = [str(BINARIES / tool), *action, str(output / name)]
        checked = subprocess.run(command, capture_output=True, text=True, check=False)
        assert checked.returncode == 0, checked


def test_a_folder_without_such_files_is_an_error(tmp_path: Path) -> None:
    done = run("rules", "import", str(tmp_path), "--output", str(tmp_path / "out"))
    assert done.returncode == 2
    assert "none of config.yaml" in done.stderr
    assert not (tmp_path / "out").exists()
