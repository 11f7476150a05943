"""`nodevitals rules check`: would these rules fire, on what the exporter exposes, and say enough?

In: a folder of rule files with `tests/` and `runbooks/` below it, and the catalogue. Out:
findings. What PromQL means is promtool's to judge; it is run as well where it is found.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec

from nodevitals import catalogue
from nodevitals.commands.rules.expression import Matcher, Selector, changed_meanings, selectors
from nodevitals.document import DocumentError, parse_yaml
from nodevitals.probe import Family

# Prometheus sets these itself, or the job that scrapes does.
TARGET_LABELS = ("job", "instance", "cluster", "__name__")
# Families that other exporters expose; their labels are theirs to say.
FOREIGN = re.compile(r"up|ALERTS|npu_\w+|node_\w+|kube_\w+|DCGM_\w+")
SEVERITIES = ("critical", "warning", "info", "none")
ANNOTATIONS = ("summary", "description", "action", "runbook_url")
JOB = "nodevitals"
FAULT = "nodevitals:fault"
PROMTOOL_SECONDS = 600


class Finding(msgspec.Struct, frozen=True, order=True):
    """What is wrong: in which file, with which rule ('' for the file)."""

    file: str
    rule: str
    problem: str


class Rule(msgspec.Struct, frozen=True):
    """A rule as its file has it."""

    file: str
    name: str
    is_alert: bool
    expression: str
    labels: dict[str, str]
    annotations: dict[str, str]


def check(folder: Path, promtool: str | None) -> list[Finding]:
    """Everything that is wrong, sorted. `promtool` is its path, None to do without."""
    found: list[Finding] = []
    rules = list(_load(folder, found))
    families = catalogue.all_families()
    recorded = {rule.name for rule in rules if not rule.is_alert}
    for rule in rules:
        for problem in _expression_problems(rule, families, recorded):
            found.append(Finding(rule.file, rule.name, problem))
    faults = {
        rule.labels["fault"]: rule.labels
        for rule in rules
        if rule.name == FAULT and "fault" in rule.labels
    }
    tested = _tested(folder, found)
    for rule in rules:
        if rule.is_alert:
            for problem in _alert_problems(rule, faults, tested, folder):
                found.append(Finding(rule.file, rule.name, problem))
    if promtool is not None:
        found += _promtool(folder, promtool)
    return sorted(set(found))


def find_promtool() -> str | None:
    """Where promtool is; None where it is not on PATH."""
    return shutil.which("promtool")


def _load(folder: Path, found: list[Finding]) -> Iterator[Rule]:
    files = sorted(folder.glob("*.yaml"))
    if not files:
        found.append(Finding(str(folder), "", "no rule file (*.yaml) here"))
    for file in files:
        document = _document(file, found)
        for group in document.get("groups", ()):
            for rule in group.get("rules", ()):
                yield Rule(
                    file.name,
                    str(rule.get("alert") or rule.get("record")),
                    "alert" in rule,
                    str(rule.get("expr", "")),
                    rule.get("labels") or {},
                    rule.get("annotations") or {},
                )


def _document(file: Path, found: list[Finding]) -> dict[str, Any]:
    try:
        document = parse_yaml(file.read_bytes())
    except (DocumentError, OSError) as error:
        found.append(Finding(file.name, "", str(error)))
        return {}
    return document if isinstance(document, dict) else {}


def _expression_problems(
    rule: Rule, families: Mapping[str, Family], recorded: set[str]
) -> Iterator[str]:
    yield from changed_meanings(rule.expression)
    for selector in selectors(rule.expression):
        family = families.get(selector.name)
        if family is not None:
            yield from _selector_problems(selector, family)
        elif selector.name not in recorded and not FOREIGN.fullmatch(selector.name):
            yield f"nobody exposes or records {selector.name or 'a metric without a name'}"
        ours = family is not None or selector.name == "up"
        if ours and not any(matcher.label == "job" for matcher in selector.matchers):
            yield f'{selector.name} without job="{JOB}": a second scrape job would double it'


def _selector_problems(selector: Selector, family: Family) -> Iterator[str]:
    for matcher in selector.matchers:
        if matcher.label in TARGET_LABELS:
            continue
        # The labels of node_info are the configuration's.
        if family != catalogue.NODE_INFO and matcher.label not in family.labels:
            yield f"{family.name} has no label {matcher.label}"
        values = family.closed.get(matcher.label)
        if values is not None and not _chooses(matcher, values):
            text = f'{matcher.label}{matcher.operator}"{matcher.value}"'
            yield f"{family.name}{{{text}}} fits none of {', '.join(values)}"


def _chooses(matcher: Matcher, values: tuple[str, ...]) -> bool:
    """Whether a matcher names values that exist: a misspelt one is silent for ever."""
    if "~" not in matcher.operator:
        return matcher.value == "" or matcher.value in values
    return all(
        any(re.fullmatch(part, value) for value in values) for part in matcher.value.split("|")
    )


def _alert_problems(
    rule: Rule,
    faults: Mapping[str, Mapping[str, str]],
    tested: Mapping[str, set[bool]],
    folder: Path,
) -> Iterator[str]:
    labels = dict(rule.labels)
    for name in re.findall(r'fault=~?"([a-z_|]+)"', rule.expression):
        for fault in name.split("|"):
            if fault not in faults:
                yield f"no rule records the fault {fault}"
            labels = {**faults.get(fault, {}), **labels}
    # One on a recorded fault has its labels from there.
    recorded = any(one.name.startswith(FAULT) for one in selectors(rule.expression))
    for label in ("severity", "component", "fault", "scope"):
        if label not in labels and not recorded:
            yield f"no label {label}"
    if labels.get("severity", "critical") not in SEVERITIES:
        yield f"severity {labels['severity']!r} is none of {', '.join(SEVERITIES)}"
    if "$value" in str(rule.labels):
        yield "$value in a label makes a new alert of every change"
    for annotation in ANNOTATIONS:
        if not rule.annotations.get(annotation):
            yield f"no annotation {annotation}"
    page = rule.annotations.get("runbook_url", "").rpartition("/")[2]
    if page and not (folder / "runbooks" / page).is_file():
        yield f"no runbook {page}"
    for fires, word in ((True, "firing"), (False, "silent")):
        always = rule.expression.strip() == "vector(1)" and not fires
        if fires not in tested.get(rule.name, set()) and not always:
            yield f"no test shows it {word}"


def _tested(folder: Path, found: list[Finding]) -> dict[str, set[bool]]:
    """Which alerts the tests show firing (True) and silent (False)."""
    tested: dict[str, set[bool]] = {}
    for file in sorted((folder / "tests").glob("*.yaml")):
        for test in _document(file, found).get("tests", ()):
            for case in test.get("alert_rule_test", ()):
                tested.setdefault(case["alertname"], set()).add(bool(case.get("exp_alerts")))
    return tested


def _promtool(folder: Path, promtool: str) -> Iterator[Finding]:
    rules = [str(file) for file in sorted(folder.glob("*.yaml"))]
    tests = [str(file) for file in sorted((folder / "tests").glob("*.yaml"))]
    commands = [("check", "rules", "--lint=all", "--lint-fatal", *rules)]
    commands += [("test", "rules", file) for file in tests]
    for command in commands:
        done = subprocess.run(
            [promtool, *command],
            capture_output=True,
            text=True,
            timeout=PROMTOOL_SECONDS,
            check=False,
        )
        if done.returncode:
            lines = [line for line in (done.stdout + done.stderr).splitlines() if line.strip()]
            file = Path(command[-1]).name if command[0] == "test" else ""
            wrong = next((n for n, line in enumerate(lines) if "FAILED" in line), 0)
            yield Finding(file, "promtool", " ".join(" ".join(lines[wrong : wrong + 4]).split()))
