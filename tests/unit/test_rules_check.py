"""`nodevitals rules check`: what it reads from an expression, and what it finds wrong."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from nodevitals.commands.rules.check import check
from nodevitals.commands.rules.expression import Matcher, Selector, changed_meanings, selectors
from testbed.node import ROOT, run

PAGE = "https://x/rules/runbooks/A.md"


@pytest.mark.parametrize(
    ("expression", "found"),
    [
        ("up", [Selector("up", ())]),
        ('up{job="x"} == 0', [Selector("up", (Matcher("job", "=", "x"),))]),
        (
            'sum by (a, b) (rate(m_total{a=~"x|y", b!="}"}[5m])) > on () group_left () t:x',
            [
                Selector("m_total", (Matcher("a", "=~", "x|y"), Matcher("b", "!=", "}"))),
                Selector("t:x", ()),
            ],
        ),
        ('{__name__="m"}', [Selector("", (Matcher("__name__", "=", "m"),))]),
        ('label_replace(m, "a", "$1", "b", "(.+)") # not n', [Selector("m", ())]),
        (
            "topk by (c) (1, m) and on (c) n unless ignoring (d) o",
            [Selector("m", ()), Selector("n", ()), Selector("o", ())],
        ),
        ("vector(1) + 0x1f + 1e9 + 1h30m", []),
        ("m offset 5m @ end()", [Selector("m", ())]),
    ],
)
def test_selectors(expression: str, found: list[Selector]) -> None:
    assert list(selectors(expression)) == found


@pytest.mark.parametrize(
    ("expression", "words"),
    [
        ("count_over_time((m > 1)[10m:1m])", "one sample more on Prometheus 2"),
        ("count_over_time((m > 1)[9m59s999ms:1m])", ""),
        ("sum_over_time(m[10m])", "left end is open"),
        ("increase(m[10m])", ""),
        ("holt_winters(m[10m], 0.5, 0.5)", "another name"),
        ('m{a=~"x.y"}', "a dot in 'x.y'"),
        ('m{a=~"x.+|y.*|z\\\\.q"}', ""),
    ],
)
def test_what_prometheus_3_reads_otherwise(expression: str, words: str) -> None:
    found = "; ".join(changed_meanings(expression))
    assert (words in found) if words else found == ""


def pack(folder: Path, **alert: object) -> Path:
    """Write a pack of one alert that is as it should be but for `alert`."""
    rule: dict[str, object] = {
        "alert": "A",
        "expr": 'nodevitals_rdma_port_up{job="nodevitals"} == 0',
        "labels": {"severity": "critical", "component": "c", "fault": "f", "scope": "node"},
        "annotations": {
            **dict.fromkeys(("summary", "description", "action"), "text"),
            "runbook_url": PAGE,
        },
    }
    document = {"groups": [{"name": "g", "rules": [rule | alert]}]}
    (folder / "a.yaml").write_text(json.dumps(document))
    (folder / "tests").mkdir()
    firing: list[object] = [{"exp_labels": {}}]
    cases = [{"alertname": "A", "exp_alerts": expected} for expected in ([], firing)]
    (folder / "tests/a.yaml").write_text(json.dumps({"tests": [{"alert_rule_test": cases}]}))
    (folder / "runbooks").mkdir()
    (folder / "runbooks/A.md").write_text("# A\n")
    return folder


def problems(folder: Path) -> list[str]:
    return [finding.problem for finding in check(folder, None)]


def test_a_pack_that_is_as_it_should_be(tmp_path: Path) -> None:
    assert problems(pack(tmp_path)) == []


@pytest.mark.parametrize(
    ("expression", "problem"),
    [
        ('nodevitals_rdma_port_upp{job="nodevitals"}', "nobody exposes or records nodevitals_rd"),
        ("nodevitals_rdma_port_up == 0", 'nodevitals_rdma_port_up without job="nodevitals"'),
        ('nodevitals_rdma_port_up{job="n", card="x"}', "nodevitals_rdma_port_up has no label card"),
        (
            'nodevitals_network_up{job="n", kind="bonded"}',
            'nodevitals_network_up{kind="bonded"} fits none of physical, bond',
        ),
        (
            'nodevitals_network_up{job="n", kind=~"bond|phys"}',
            'nodevitals_network_up{kind=~"bond|phys"} fits none of physical, bond',
        ),
        ('nodevitals:fault{fault="no_such"}', "nobody exposes or records nodevitals:fault"),
    ],
)
def test_what_an_expression_gets_wrong(tmp_path: Path, expression: str, problem: str) -> None:
    assert any(found.startswith(problem) for found in problems(pack(tmp_path, expr=expression)))


@pytest.mark.parametrize(
    ("alert", "problem"),
    [
        ({"labels": {"severity": "page"}}, "severity 'page' is none of critical, warning"),
        ({"labels": {}}, "no label component"),
        ({"annotations": {"summary": "x"}}, "no annotation runbook_url"),
        ({"annotations": {"runbook_url": "https://x/B.md"}}, "no runbook B.md"),
        ({"alert": "B"}, "no test shows it firing"),
        ({"labels": {"was": "{{ $value }}"}}, "$value in a label makes a new alert"),
    ],
)
def test_what_an_alert_lacks(tmp_path: Path, alert: dict[str, object], problem: str) -> None:
    assert any(found.startswith(problem) for found in problems(pack(tmp_path, **alert)))


def test_the_command(tmp_path: Path) -> None:
    folder = pack(tmp_path, expr="nodevitals_wrong")
    done = run("rules", "check", str(folder), "--promtool", "")
    assert done.returncode == 1
    assert done.stdout.splitlines()[0].split() == ["FILE", "RULE", "PROBLEM"]
    found = json.loads(run("rules", "check", str(folder), "--json").stdout)
    assert found[0]["file"] == "a.yaml"
    nowhere = run("rules", "check", str(tmp_path / "nowhere"))
    assert (nowhere.returncode, "no rule file" in nowhere.stdout) == (1, True)


def test_promtool_is_heard(tmp_path: Path) -> None:
    folder = pack(tmp_path, expr='nodevitals_rdma_port_up{job="nodevitals"} ==')
    promtool = str(ROOT / ".tools/root/usr/bin/promtool")
    found = check(folder, promtool)
    assert any(finding.rule == "promtool" for finding in found)


def test_a_file_that_is_no_yaml_is_told(tmp_path: Path) -> None:
    folder = pack(tmp_path)
    (folder / "b.yaml").write_text("groups: [")
    assert any("not valid YAML" in problem for problem in problems(folder))
