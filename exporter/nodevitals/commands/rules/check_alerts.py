"""Checks that alerts have labels, annotations, a runbook and tests."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from nodevitals.commands.rules.expression import selectors
from nodevitals.commands.rules.findings import Finding, FindingId
from nodevitals.commands.rules.rule_files import Rule

LABELS = ("severity", "component", "fault", "scope")
SEVERITIES = ("critical", "warning", "info", "none")
ANNOTATIONS = ("summary", "description", "action", "runbook_url")
FAULT = "nodevitals:fault"
_FAULT_MATCHER = re.compile(r'fault=~?"([a-z_|]+)"')


def check_alerts(
    rules: Sequence[Rule], tested: Mapping[str, set[bool]], folder: Path
) -> Iterator[Finding]:
    """What is missing from the alerts; `tested` as `read_tests` returns it."""
    faults = {
        rule.labels["fault"]: rule.labels
        for rule in rules
        if rule.name == FAULT and "fault" in rule.labels
    }
    for rule in rules:
        if rule.is_alert:
            yield from _check_labels(rule, faults)
            yield from _check_annotations(rule, folder)
            yield from _check_tests(rule, tested.get(rule.name, set()))


def _check_labels(rule: Rule, faults: Mapping[str, Mapping[str, str]]) -> Iterator[Finding]:
    labels = dict(rule.labels)
    for match in _FAULT_MATCHER.finditer(rule.expression):
        for fault in match[1].split("|"):
            labels = {**faults.get(fault, {}), **labels}
    # An alert on a recorded fault has the labels of the fault.
    inherits = any(selector.name.startswith(FAULT) for selector in selectors(rule.expression))
    for label in LABELS:
        if label not in labels and not inherits:
            yield _finding(rule, "label/missing", f"no label {label}")
    severity = labels.get("severity", "critical")
    if severity not in SEVERITIES:
        text = f"severity {severity!r} is none of {', '.join(SEVERITIES)}"
        yield _finding(rule, "severity/unknown", text)
    for label, value in rule.labels.items():
        if "$value" in value:
            text = f"$value in the label {label}: each new value would be a new alert"
            yield _finding(rule, "label/template", text)


def _check_annotations(rule: Rule, folder: Path) -> Iterator[Finding]:
    for annotation in ANNOTATIONS:
        if not rule.annotations.get(annotation):
            yield _finding(rule, "annotation/missing", f"no annotation {annotation}")
    page = rule.annotations.get("runbook_url", "").rpartition("/")[2]
    if page and not (folder / "runbooks" / page).is_file():
        yield _finding(rule, "runbook/missing", f"no file runbooks/{page}")


def _check_tests(rule: Rule, expectations: set[bool]) -> Iterator[Finding]:
    always_fires = rule.expression.strip() == "vector(1)"
    if True not in expectations:
        yield _finding(rule, "test/missing", "no test expects it firing")
    if False not in expectations and not always_fires:
        yield _finding(rule, "test/missing", "no test expects it silent")


def _finding(rule: Rule, name: FindingId, text: str) -> Finding:
    return Finding(rule.file, rule.first_line, name, rule.name, text)
