"""Sampled rules in, Prometheus rules out, as text.

A sampled rule fires when its expression is true for more than a share (strictly) of
floor(interval / step) samples: one good sample among many does not hide a fault.
"""

from __future__ import annotations

import math
import re
from typing import Annotated, Any, Literal

import msgspec
import yaml

from nodevitals.document import DocumentError, Problem, convert, parse_yaml
from nodevitals.quantities import Seconds

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


class SampledRule(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One rule. `percent_threshold`: at least 0, below 100; `step` and `interval` in seconds."""

    name: str
    query_expression: str
    step: Seconds
    interval: Seconds
    percent_threshold: Annotated[float, msgspec.Meta(ge=0, lt=100)]
    severity: Literal["critical", "warning", "info"]
    summary: str = ""

    @property
    def samples(self) -> int:
        """Number of samples that are counted."""
        # Both are decimal in the file: 0.3 / 0.1 must be 3.
        return math.floor(self.interval / self.step + 1e-9)


class SampledRules(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The whole file."""

    rules: tuple[SampledRule, ...]


def parse(text: bytes) -> tuple[SampledRule, ...]:
    """The rules of a file. Raises DocumentError with every problem."""
    problems: list[Problem] = []
    document = convert(parse_yaml(text), SampledRules, "", problems)
    if document is not None:
        problems += problems_of(document.rules)
    if problems or document is None:
        raise DocumentError(problems)
    rules: tuple[SampledRule, ...] = document.rules
    return rules


def problems_of(rules: tuple[SampledRule, ...]) -> list[Problem]:
    """What the types do not check: names, and intervals too short for a sample."""
    problems = []
    seen: set[str] = set()
    for number, rule in enumerate(rules):
        if not _NAME.fullmatch(rule.name):
            problems.append(
                Problem(f"rules[{number}].name", f"{rule.name!r} is not a valid alert name")
            )
        if rule.name in seen:
            problems.append(
                Problem(f"rules[{number}].name", f"another rule is also named {rule.name}")
            )
        seen.add(rule.name)
        if rule.samples < 1:
            problems.append(
                Problem(f"rules[{number}].interval", "shorter than the step: no sample")
            )
        if not rule.query_expression.strip():
            problems.append(Problem(f"rules[{number}].query_expression", "empty"))
    return problems


def render(rules: tuple[SampledRule, ...]) -> str:
    """A rule file for Prometheus."""
    return rule_file("custom", [alert(rule) for rule in rules], "render")


def rule_file(name: str, alerts: list[dict[str, Any]], action: str, interval: str = "") -> str:
    """One group of alerts as a file; with the interval '' Prometheus' default applies."""
    group: dict[str, Any] = {"name": name, **({"interval": interval} if interval else {})}
    group["rules"] = alerts
    head = f"# Made by `nodevitals rules {action}`; change its source instead.\n"
    text = yaml.safe_dump({"groups": [group]}, sort_keys=False, allow_unicode=True, width=100)
    return head + text


def alert(rule: SampledRule, labels: dict[str, str] | None = None) -> dict[str, Any]:
    """An alert for Prometheus, with additional labels."""
    step = round(rule.step * 1000)
    # A millisecond shorter than all steps: the range then has this number of samples on
    # Prometheus 2, which includes both ends of a range, and on 3, which excludes the left one.
    window = f"[{rule.samples * step - 1}ms:{step}ms]"
    expression = rule.query_expression.strip()
    share = f"{rule.percent_threshold / 100:.12g}"
    summary = rule.summary or f"{rule.name} on {{{{ $labels.instance }}}}"
    return {
        "alert": rule.name,
        "expr": f"count_over_time((\n{expression}\n){window}) / {rule.samples} > {share}",
        "labels": {
            "severity": rule.severity,
            "component": "custom",
            "fault": re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", rule.name).lower(),
            "action": "investigate",
            "scope": "node",
            **(labels or {}),
        },
        "annotations": {
            "summary": summary,
            "description": f"{{{{ $value | humanizePercentage }}}} of {rule.samples} samples, over "
            f"{rule.percent_threshold:g} %: {' '.join(expression.split())}",
            "action": "This is a rule of the site: ask its author.",
        },
    }
