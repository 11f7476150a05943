"""Mutation tests of the rules: each rule is changed in each way that applies, and the promtool
tests of its file are run. Mutants with which all tests pass are printed.

Ways: a comparison is inverted, a wait is removed, a label is removed, a threshold is multiplied by
ten.
"""

from __future__ import annotations

import copy
import re
import shutil
import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from bench.measure import table
from testbed.node import ROOT
from testbed.servers import BINARIES

_COMPARISON = re.compile(r"(?<![=!<>~])(==|!=|>=|<=|>|<)(?!=)")
_INVERTED = {"==": "!=", "!=": "==", ">": "<", "<": ">", ">=": "<", "<=": ">"}


class Mutant(NamedTuple):
    """A changed rule: where its original is, what it is called, and the change."""

    file: str
    group: int
    number: int
    name: str
    change: str
    rule: dict[str, Any]


def outside_strings(expression: str, change: re.Pattern[str], by: Any) -> str:
    """Return the expression with its first match outside of strings and selectors replaced."""
    parts = re.split(r'("(?:\\.|[^"\\])*"|\{[^}]*\})', expression)
    for index in range(0, len(parts), 2):
        changed = change.sub(by, parts[index], count=1)
        if changed != parts[index]:
            parts[index] = changed
            return "".join(parts)
    return expression


def changes(rule: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield each changed form of a rule, with the name of the change."""
    expression = rule["expr"]
    inverted = outside_strings(expression, _COMPARISON, lambda match: _INVERTED[match[1]])
    if inverted != expression:
        yield "comparison inverted", {**rule, "expr": inverted}
    if "for" in rule:
        yield "for removed", {key: value for key, value in rule.items() if key != "for"}
    for label in rule.get("labels", {}):
        changed = copy.deepcopy(rule)
        del changed["labels"][label]
        yield f"label {label} removed", changed
    if rule.get("record") == "nodevitals:threshold":
        number = re.compile(r"[\d.]+")
        yield "times ten", {**rule, "expr": number.sub(lambda m: str(float(m[0]) * 10), expression)}


def mutants(path: Path) -> Iterator[Mutant]:
    """Yield every mutant of the rules of a file."""
    document = yaml.safe_load(path.read_text())
    for group_number, group in enumerate(document["groups"]):
        for number, rule in enumerate(group["rules"]):
            labels = rule.get("labels", {})
            recorded = labels.get("fault", labels.get("threshold", rule.get("record")))
            name = rule.get("alert") or recorded
            for change, changed in changes({"labels": {}, **rule}):
                yield Mutant(path.name, group_number, number, name, change, changed)


def survives(folder: Path, mutant: Mutant) -> bool:
    """Return whether all tests pass with this rule in place of the original."""
    shutil.copytree(ROOT / "rules", folder, ignore=shutil.ignore_patterns("runbooks"))
    path = folder / mutant.file
    document = yaml.safe_load(path.read_text())
    document["groups"][mutant.group]["rules"][mutant.number] = mutant.rule
    path.write_text(yaml.safe_dump(document))
    tests = [
        test
        for test in sorted((folder / "tests").glob("*.yaml"))
        if f"../{mutant.file}" in test.read_text().partition("\n")[0]
    ]
    passed = all(
        subprocess.run(
            [BINARIES / "promtool", "test", "rules", test], capture_output=True
        ).returncode
        == 0
        for test in tests
    )
    shutil.rmtree(folder)
    return passed


def main(folder: Path, only: str = "") -> None:
    """Print the table of surviving mutants; `only` limits it to files with this in their name."""
    paths = [path for path in sorted((ROOT / "rules").glob("*.yaml")) if only in path.name]
    made = [mutant for path in paths for mutant in mutants(path)]
    folders = [folder / str(number) for number in range(len(made))]
    with ThreadPoolExecutor(2) as pool:
        survived = list(pool.map(survives, folders, made))
    alive = [mutant for mutant, lives in zip(made, survived, strict=True) if lives]
    print(f"{len(made)} mutants, {len(alive)} survive.\n")
    if alive:
        table(["file", "rule", "mutation"], [[one.file, one.name, one.change] for one in alive])
