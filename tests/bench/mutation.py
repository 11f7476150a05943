"""Would a test notice? Every rule is broken in turn, in each way that fits it, and the promtool
tests of its file are run: what they do not notice survives, and is printed.

Ways: a comparison is turned, a wait is dropped, a label is dropped, a threshold is ten times as
high.
"""

from __future__ import annotations

import copy
import re
import shutil
import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import yaml

from bench.measure import table
from testbed.node import ROOT
from testbed.servers import BINARIES

_COMPARISON = re.compile(r"(?<![=!<>~])(==|!=|>=|<=|>|<)(?!=)")
_TURNED = {"==": "!=", "!=": "==", ">": "<", "<": ">", ">=": "<", "<=": ">"}


def outside_strings(expression: str, change: re.Pattern[str], by: Any) -> str:
    """Change an expression's first match that is in no string."""
    parts = re.split(r'("(?:\\.|[^"\\])*"|\{[^}]*\})', expression)
    for index in range(0, len(parts), 2):
        changed = change.sub(by, parts[index], count=1)
        if changed != parts[index]:
            parts[index] = changed
            return "".join(parts)
    return expression


def mutants(rule: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Every way to break a rule, by name."""
    expression = rule["expr"]
    turned = outside_strings(expression, _COMPARISON, lambda match: _TURNED[match[1]])
    if turned != expression:
        yield "comparison turned", {**rule, "expr": turned}
    if "for" in rule:
        yield "for dropped", {key: value for key, value in rule.items() if key != "for"}
    for label in rule.get("labels", {}):
        broken = copy.deepcopy(rule)
        del broken["labels"][label]
        yield f"label {label} dropped", broken
    if rule.get("record") == "nodevitals:threshold":
        number = re.compile(r"[\d.]+")
        yield "ten times", {**rule, "expr": number.sub(lambda m: str(float(m[0]) * 10), expression)}


def survives(folder: Path, file: str, place: tuple[int, int], mutant: dict[str, Any]) -> bool:
    """Whether all tests pass with this rule instead."""
    shutil.copytree(ROOT / "rules", folder, ignore=shutil.ignore_patterns("runbooks"))
    path = folder / file
    document = yaml.safe_load(path.read_text())
    document["groups"][place[0]]["rules"][place[1]] = mutant
    path.write_text(yaml.safe_dump(document))
    tests = [
        test
        for test in sorted((folder / "tests").glob("*.yaml"))
        if f"../{file}" in test.read_text().partition("\n")[0]
    ]
    done = all(
        subprocess.run(
            [BINARIES / "promtool", "test", "rules", test], capture_output=True
        ).returncode
        == 0
        for test in tests
    )
    shutil.rmtree(folder)
    return done


def main(folder: Path, only: str = "") -> None:
    """Print the table of survivors."""
    jobs = []
    for path in sorted((ROOT / "rules").glob("*.yaml")):
        document = yaml.safe_load(path.read_text())
        for group_number, group in enumerate(document["groups"]):
            for number, rule in enumerate(group["rules"]):
                labels = rule.get("labels", {})
                name = rule.get("alert") or labels.get(
                    "fault", labels.get("threshold", rule["record"])
                )
                for way, mutant in mutants({"labels": {}, **rule}):
                    if only in path.name:
                        jobs.append((path.name, (group_number, number), name, way, mutant))
    with ThreadPoolExecutor(2) as pool:
        found = list(
            pool.map(
                lambda item: survives(folder / str(item[0]), item[1][0], item[1][1], item[1][4]),
                enumerate(jobs),
            )
        )
    alive = [job for job, lives in zip(jobs, found, strict=True) if lives]
    print(f"{len(jobs)} mutants, {len(alive)} survive.\n")
    if alive:
        table(["file", "rule", "mutation"], [[job[0], job[2], job[3]] for job in alive])
