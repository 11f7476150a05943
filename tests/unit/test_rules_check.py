"""`nodevitals rules check`: each finding, what promtool adds, and the output."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from nodevitals.commands.rules.check import check
from nodevitals.commands.rules.findings import IDS, REMEDIES, Finding
from testbed.node import ROOT, run

PROMTOOL = str(ROOT / ".tools/root/usr/bin/promtool")
DOCUMENT = ROOT / "docs/rules-check.md"
ALERT: dict[str, Any] = {
    "alert": "A",
    "expr": 'nodevitals_rdma_port_up{job="nodevitals"} == 0',
    "labels": {"severity": "critical", "component": "c", "fault": "f", "scope": "node"},
    "annotations": {
        **dict.fromkeys(("summary", "description", "action"), "text"),
        "runbook_url": "https://x/rules/runbooks/A.md",
    },
}
FAULT = {"record": "nodevitals:fault", "labels": {"fault": "f"}, "expr": "vector(1)"}
COMPARED = 'up{job="nodevitals"} > on () nodevitals:threshold{job="", threshold="%s"}'
THRESHOLD = {"record": "nodevitals:threshold", "labels": {"threshold": "t"}, "expr": "vector(1)"}


def write_pack(folder: Path, *rules: dict[str, Any]) -> Path:
    """Write a pack of rules, by default of one alert without findings; A has tests and a page."""
    document = {"groups": [{"name": "g", "rules": list(rules or (ALERT,))}]}
    (folder / "a.yaml").write_text(json.dumps(document))
    (folder / "tests").mkdir()
    firing: list[object] = [{"exp_labels": {}}]
    cases = [{"alertname": "A", "exp_alerts": expected} for expected in ([], firing)]
    (folder / "tests/a.yaml").write_text(json.dumps({"tests": [{"alert_rule_test": cases}]}))
    (folder / "runbooks").mkdir()
    (folder / "runbooks/A.md").write_text("# A\n")
    return folder


def findings(folder: Path) -> list[tuple[str, str]]:
    return [(finding.id, finding.message) for finding in check([folder], None, strict=True)]


def reads(expression: str) -> list[dict[str, Any]]:
    return [ALERT | {"expr": expression}]


# Rules, and the finding that they provoke. The ids of files and of promtool are provoked below,
# those of comments in test_rules_silences.py, the mistakes of sites in test_rules_site.py.
PROVOKED: list[tuple[list[dict[str, Any]], str, str]] = [
    (
        reads('nodevitals_rdma_port_upp{job="nodevitals"}'),
        *("metric/unknown", "no probe exposes and no rule records nodevitals_rdma_port_upp"),
    ),
    (
        reads('nodevitals:fault{fault="no_such"}'),
        *("metric/unknown", "no probe exposes and no rule records nodevitals:fault"),
    ),
    (
        reads("nodevitals_rdma_port_up == 0"),
        *("label/job", 'nodevitals_rdma_port_up without job="nodevitals"'),
    ),
    (
        reads('nodevitals_rdma_port_up{job="nodevitals", card="x"}'),
        *("label/unknown", "nodevitals_rdma_port_up has no label card"),
    ),
    (
        reads('nodevitals_network_up{job="nodevitals", kind="bonded"}'),
        *("label/value", 'nodevitals_network_up{kind="bonded"} matches none of physical, bond'),
    ),
    (
        reads('nodevitals_network_up{job="nodevitals", kind=~"bond|phys"}'),
        *("label/value", 'nodevitals_network_up{kind=~"bond|phys"} matches none of physical, bond'),
    ),
    ([ALERT | {"labels": {}}], "label/missing", "no label component"),
    (
        [ALERT | {"labels": {**ALERT["labels"], "was": "{{ $value }}"}}],
        *("label/template", "$value in the label was"),
    ),
    (
        [ALERT | {"labels": {**ALERT["labels"], "severity": "page"}}],
        *("severity/unknown", "severity 'page' is none of critical, warning"),
    ),
    (
        [FAULT, *reads('nodevitals:fault{fault="no_such"}')],
        *("label/value", 'nodevitals:fault{fault="no_such"} matches none of f'),
    ),
    (
        [ALERT | {"annotations": {"summary": "x"}}],
        *("annotation/missing", "no annotation runbook_url"),
    ),
    (
        [ALERT | {"annotations": {**ALERT["annotations"], "runbook_url": "https://x/B.md"}}],
        *("runbook/missing", "no file runbooks/B.md"),
    ),
    ([ALERT | {"alert": "B"}], "test/missing", "no test expects it firing"),
    ([ALERT | {"alert": "B"}], "test/missing", "no test expects it silent"),
    (
        [THRESHOLD, *reads(COMPARED % "u")],
        *("label/value", 'nodevitals:threshold{threshold="u"} matches none of t'),
    ),
    (
        [THRESHOLD, *reads(COMPARED % "t")],
        *("threshold/unlisted", 'no alert on absent(nodevitals:threshold{job="", threshold="t"})'),
    ),
    (
        reads('count_over_time((up{job="nodevitals"} == 0)[10m:1m])'),
        *("promql/prometheus3", "[10m:1m] has one sample more on Prometheus 2 than on 3"),
    ),
]
ELSEWHERE = {"file/missing", "file/invalid", "promtool/check", "promtool/test"}
ELSEWHERE |= {"promql/value", "promql/counter", "promql/rate", "promql/join", "template/label"}
ELSEWHERE |= {"silence/no-reason", "silence/unknown", "silence/unused"}


def test_a_complete_pack_has_no_findings(tmp_path: Path) -> None:
    assert findings(write_pack(tmp_path)) == []


@pytest.mark.parametrize(("rules", "name", "message"), PROVOKED)
def test_each_id_is_found(
    tmp_path: Path, rules: list[dict[str, Any]], name: str, message: str
) -> None:
    found = findings(write_pack(tmp_path, *rules))
    assert any(one == name and text.startswith(message) for one, text in found), found


def test_values_of_alternatives_in_parentheses_are_not_checked(tmp_path: Path) -> None:
    rules = reads('nodevitals_network_up{job="nodevitals", kind=~"(bond|physical)"}')
    found = findings(write_pack(tmp_path, *rules))
    assert "label/value" not in {name for name, _ in found}


def test_every_id_has_a_test_that_provokes_it() -> None:
    assert {name for _, name, _ in PROVOKED} | ELSEWHERE == set(IDS)


def test_every_id_is_documented_and_no_other() -> None:
    """Each section explains the id, and shows the mistake and how to silence the finding."""
    parts = re.split(r"^## `([a-z0-9/-]+)`$", DOCUMENT.read_text(), flags=re.MULTILINE)
    sections = dict(zip(parts[1::2], parts[2::2], strict=True))
    assert list(sections) == list(IDS)
    for name, section in sections.items():
        assert "```" in section, name
        silenced = f"# nodevitals disable {name}: " in section
        assert silenced or "It cannot be silenced" in section, name


def test_a_threshold_that_every_alert_knows_is_no_finding(tmp_path: Path) -> None:
    uses = reads('up{job="nodevitals"} > on () nodevitals:threshold{job="", threshold=~"t"}')
    absent = ALERT | {"expr": 'absent(nodevitals:threshold{job="", threshold="t"})'}
    assert findings(write_pack(tmp_path, THRESHOLD, *uses, absent)) == []


@pytest.mark.parametrize("removed", ["recorded", "listed"])
def test_shipped_thresholds_are_recorded_and_listed(tmp_path: Path, removed: str) -> None:
    """ThresholdMissing lists what thresholds.yaml records: a change of one of them is found."""
    for file in (ROOT / "rules").glob("*.yaml"):
        (tmp_path / file.name).write_text(file.read_text())
    file = tmp_path / ("thresholds.yaml" if removed == "recorded" else "agent.yaml")
    file.write_text(file.read_text().replace("cpu_share", "renamed_share"))
    found = {finding.id for finding in check([tmp_path], None, strict=True)}
    assert found - {"test/missing", "runbook/missing"} == {"label/value", "threshold/unlisted"}


def test_a_folder_without_rule_files_is_a_finding(tmp_path: Path) -> None:
    assert findings(tmp_path) == [("file/missing", "no rule file (*.yaml or *.yml) here")]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("groups: [", "not valid YAML"),
        ("groups: {}", ": Expected a list or nothing, got a mapping"),
        ("groups: [{rules: [x]}]", "[0]: Expected a mapping, got text"),
        ("a: 1\na: 2", "a: duplicate key"),
    ],
)
@pytest.mark.parametrize("folder", [".", "tests"])
def test_a_file_that_cannot_be_used_is_a_finding(
    tmp_path: Path, folder: str, text: str, message: str
) -> None:
    file = write_pack(tmp_path) / folder / "b.yaml"
    file.write_text(text.replace("groups", "tests").replace("rules", "alert_rule_test"))
    if folder == ".":
        file.write_text(text)
    (finding,) = check([tmp_path], None, strict=True)
    assert (finding.file, finding.id) == (str(file), "file/invalid")
    assert message in finding.message


@pytest.mark.parametrize("text", ["", "groups:", "groups: [{name: g, rules: }]"])
def test_a_file_without_rules_has_no_findings(tmp_path: Path, text: str) -> None:
    (write_pack(tmp_path) / "b.yaml").write_text(text)
    assert findings(tmp_path) == []


def test_a_finding_has_the_line_of_the_selector(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text(
        "groups:\n- name: g\n  rules:\n"
        "  - record: one\n    expr: nodevitals_one\n"
        "  - record: two\n    expr: |\n      # comment\n      up{job='nodevitals'}\n"
        "        + nodevitals_two\n"
    )
    lines = [(finding.rule, finding.line) for finding in check([tmp_path], None, strict=True)]
    assert lines == [("one", 5), ("two", 10)]


def test_a_finding_as_text() -> None:
    finding = Finding("rules/x.yaml", 12, "metric/unknown", "A", "no such metric")
    assert str(finding) == "rules/x.yaml:12: metric/unknown: A: no such metric"
    finding = Finding("rules", 0, "file/missing", "", "no rule file")
    assert str(finding) == "rules: file/missing: no rule file"


def test_the_command_prints_findings_as_lines_or_json(tmp_path: Path) -> None:
    folder = write_pack(tmp_path, *reads('nodevitals_wrong{job="nodevitals"}'))
    done = run("rules", "check", "--strict", str(folder), "--promtool", "/bin/true")
    assert done.returncode == 1
    message = "no probe exposes and no rule records nodevitals_wrong"
    head, line, remedy = done.stdout.splitlines()
    assert head.split("  ")[0] == "PLACE"
    assert re.split("  +", line) == [f"{folder}/a.yaml:1", "metric/unknown", "A", message]
    assert remedy.strip() == f"→ {REMEDIES['metric/unknown']}"
    done = run("rules", "check", "--strict", str(folder), "--json", "--promtool", "/bin/true")
    assert json.loads(done.stdout) == [
        {
            "file": f"{folder}/a.yaml",
            "line": 1,
            "id": "metric/unknown",
            "rule": "A",
            "message": message,
            "remedy": REMEDIES["metric/unknown"],
        }
    ]


def test_the_command_without_findings(tmp_path: Path) -> None:
    done = run("rules", "check", str(write_pack(tmp_path)), "--promtool", "/bin/true")
    assert (done.returncode, done.stdout) == (0, f"{tmp_path}: ok\n")
    done = run("rules", "check", str(tmp_path), PATH="/nowhere")
    assert "promtool was not found" in done.stdout


def test_a_promtool_that_does_not_start_is_one_line(tmp_path: Path) -> None:
    done = run("rules", "check", str(write_pack(tmp_path)), "--promtool", "/nowhere/promtool")
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert "/nowhere/promtool: No such file or directory" in done.stderr


def test_promtool_finds_wrong_syntax(tmp_path: Path) -> None:
    folder = write_pack(tmp_path, *reads('nodevitals_rdma_port_up{job="nodevitals"} =='))
    found = check([folder], PROMTOOL, strict=True)
    (finding,) = (one for one in found if one.id == "promtool/check")
    assert (finding.file, finding.line) == (f"{folder}/a.yaml", 1)
    assert "unexpected end of input" in finding.message


def test_promtool_finds_a_failing_test(tmp_path: Path) -> None:
    folder = write_pack(tmp_path)
    sample = {"expr": "vector(1)", "eval_time": "1m", "exp_samples": [{"value": 2}]}
    document = {"rule_files": ["../a.yaml"], "tests": [{"promql_expr_test": [sample]}]}
    (folder / "tests/b.yaml").write_text(json.dumps(document))
    found = check([folder], PROMTOOL, strict=True)
    found = [one for one in found if one.file.endswith("tests/b.yaml")]
    assert [one.id for one in found] == ["promtool/test"]
    assert 'expr: "vector(1)"' in found[0].message
