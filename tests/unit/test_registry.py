"""The registry of faults: a problem names file and item, and rule files say what the entry says."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from tools.registry import RegistryError, problems, read_registry
from tools.rule_text import rule_files

from testbed.node import ROOT

WORDS = (ROOT / "rules/faults/chinese.yaml").read_text()
ENTRY = """\
about: Threads.
component: node
groups:
  - name: nodevitals-threads
    rules:
      - fault: threads_many
        chinese: {name: 线程过多}
        action: investigate
        severity: critical
        scope: node
        note: A comment.
        thresholds:
          - name: threads
            value: 10
            unit: threads
        expr: threads > on () group_left () nodevitals:threshold{job="", threshold="threads"}
        alert:
          name: ThreadsMany
          for: 5m
          summary: "Threads on {{ $labels.instance }}"
          description: Jobs are slow.
          action: "Find it: ps"
"""


@pytest.fixture
def rules(tmp_path: Path) -> Path:
    """A folder with an entry, its test and its pages."""
    for name, text in {
        "faults/chinese.yaml": WORDS,
        "faults/threads.yaml": ENTRY,
        "tests/threads.yaml": "alertname: ThreadsMany",
        "runbooks/ThreadsMany.md": "",
        "runbooks/zh/ThreadsMany.md": "",
    }.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    return tmp_path


def missing(rules: Path) -> list[str]:
    registry = read_registry(rules / "faults")
    made = {rules / name: text for name, text in rule_files(registry).items()}
    return list(problems(registry, made, rules))


def test_an_entry_makes_a_fault_its_alert_and_its_thresholds(rules: Path) -> None:
    assert missing(rules) == []
    files = rule_files(read_registry(rules / "faults"))
    assert "      # A comment.\n      - record: nodevitals:fault\n" in files["threads.yaml"]
    [group] = yaml.safe_load(files["threads.yaml"])["groups"]
    record, alert = group["rules"]
    assert record["labels"] == {
        "fault": "threads_many",
        "component": "node",
        "action": "investigate",
        "severity": "critical",
        "scope": "node",
    }
    assert alert["expr"] == 'nodevitals:fault{fault="threads_many"}'
    assert alert["for"] == "5m"
    assert alert["annotations"]["runbook_url"].endswith("/rules/runbooks/ThreadsMany.md")
    [thresholds] = yaml.safe_load(files["thresholds.yaml"])["groups"]
    assert [rule["expr"] for rule in thresholds["rules"]] == ["vector(10)"]


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        ("severity: critical", "severity: bad", "threads.yaml: fault threads_many: severity 'bad'"),
        ("scope: node", "scope: rack", "threads.yaml: fault threads_many: scope 'rack'"),
        ("component: node", "", "threads.yaml: fault threads_many: no component"),
        ("chinese: {name: 线程过多}", "", "threads.yaml: fault threads_many: 0 items"),
        ("name: ThreadsMany", "name: Other", "threads.yaml: alert Other: no promtool test"),
        ('threshold="threads"', 'threshold="x"', "threads.yaml: threshold x: no item declares it"),
        ('threshold="threads"', 'threshold="x"', "threshold threads: no rule reads it"),
    ],
)
def test_what_is_missing_is_named(rules: Path, old: str, new: str, problem: str) -> None:
    (rules / "faults/threads.yaml").write_text(ENTRY.replace(old, new))
    assert [one for one in missing(rules) if one.startswith(problem)]


@pytest.mark.parametrize("page", ["runbooks/ThreadsMany.md", "runbooks/zh/ThreadsMany.md"])
def test_a_critical_alert_has_a_page_in_both_languages(rules: Path, page: str) -> None:
    (rules / page).unlink()
    assert missing(rules) == [f"threads.yaml: alert ThreadsMany: no page rules/{page}"]


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        ("scope: node", "", "threads.yaml: fault threads_many: .*`scope`"),
        ("scope: node", "scoop: node", "threads.yaml: fault threads_many: .*`scoop`"),
        ("for: 5m", "wait: 5m", "threads.yaml: fault threads_many: .*`wait`"),
        ("- fault:", "- fault_name:", "threads.yaml: an item with none of fault, record, alert"),
        ("about: Threads.", "", "threads.yaml: .*`about`"),
    ],
)
def test_an_entry_of_another_form_is_refused(rules: Path, old: str, new: str, problem: str) -> None:
    (rules / "faults/threads.yaml").write_text(ENTRY.replace(old, new))
    with pytest.raises(RegistryError, match=problem):
        read_registry(rules / "faults")
