"""RepairManager's rules as sampled rules."""

from __future__ import annotations

import re
from typing import Any, Literal

from nodevitals.commands.rules.repair_manager.durations import parse_seconds
from nodevitals.commands.rules.repair_manager.files import RULES_OUT, ConvertedKey
from nodevitals.commands.rules.repair_manager.metrics import map_metrics
from nodevitals.commands.rules.repair_manager.references import Missing
from nodevitals.commands.rules.sampled_rules import SampledRule, problems_of

_RULE_KEYS = SampledRule.__struct_fields__
_INSTANCE = "{{ $labels.instance }}"
_SEVERITIES = ("critical", "warning", "info")


def convert_rules(
    document: Any, file: str, rules: dict[str, SampledRule], mapped: bool = False
) -> list[ConvertedKey]:
    """Add the rules of a document to `rules`, by name; return the report about their keys.

    Every mapping with a query is a rule; its name is its `name` or its key.
    """
    keys: list[ConvertedKey] = []

    def walk(value: Any, path: str, name: str) -> None:
        if isinstance(value, dict) and "query_expression" in value:
            keys.extend(_convert_rule(value, file, path, name, rules, mapped))
        elif isinstance(value, dict):
            for key, inner in value.items():
                walk(inner, f"{path}.{key}" if path else str(key), str(key))
        elif isinstance(value, list):
            for number, inner in enumerate(value):
                walk(inner, f"{path}[{number}]", f"{name}_{number}")

    walk(document, "", "rule")
    return keys


def _convert_rule(
    value: dict[str, Any],
    file: str,
    path: str,
    name: str,
    rules: dict[str, SampledRule],
    mapped: bool,
) -> list[ConvertedKey]:
    lost = next((item for item in value.values() if isinstance(item, Missing)), None)
    problems = [str(lost)] if lost else []
    note = ""
    if mapped and not lost:
        expression, note = map_metrics(str(value["query_expression"]))
        value = {**value, "query_expression": expression}
    rule = _sampled_rule(value, name, problems)
    problems += [problem.message for problem in problems_of((rule,))]
    if rule.name in rules:
        problems.append(f"another rule is named {rule.name}")
    if not problems:
        rules[rule.name] = rule
    keys = []
    for key in value:
        why = f"not a valid rule: {problems[0]}" if problems else _why_dropped(key, value, rule)
        became = "" if why else f"{RULES_OUT}: alert {rule.name}"
        is_query = key == "query_expression"
        if is_query and became:
            became += note
        where = f"{path}.{key}" if path else str(key)
        lost_rule = bool(problems) and is_query
        keys.append(
            ConvertedKey(file=file, path=where, became=became, why=why, rule_lost=lost_rule)
        )
    return keys


def _why_dropped(key: str, value: dict[str, Any], rule: SampledRule) -> str:
    """Why one key of a valid rule is not used; '' where it is."""
    if key not in _RULE_KEYS:
        return "sampled rules have no such key"
    if key == "severity" and value[key] != rule.severity:
        return f"{value[key]!r} is no severity here; {rule.severity} is used"
    return ""


def _sampled_rule(value: dict[str, Any], name: str, problems: list[str]) -> SampledRule:
    """The rule; where a part is missing or wrong, with a stand-in, and a problem is added."""

    def seconds(key: str, unit: Literal["s", "m"] = "s") -> float:
        try:
            return parse_seconds(value[key], unit)
        except KeyError:
            problems.append(f"no {key}")
        except ValueError as error:
            problems.append(f"{key}: {error}")
        return 1.0

    share = value.get("percent_threshold")
    if not isinstance(share, (int, float)) or isinstance(share, bool) or not 0 <= share < 100:
        problems.append(f"percent_threshold: {share!r} is not at least 0 and below 100")
        share = 0
    severity = value.get("severity", "warning")
    return SampledRule(
        name=_camel_case(str(value.get("name", name))),
        query_expression=str(value["query_expression"]),
        step=seconds("step"),
        interval=seconds("interval", "m"),  # a plain number is minutes
        percent_threshold=share,
        severity=severity if severity in _SEVERITIES else "warning",
        summary=str(value.get("summary") or f"{value.get('name', name)} on {_INSTANCE}"),
    )


def _camel_case(name: str) -> str:
    words = re.findall(r"[A-Za-z0-9]+", name)
    joined = "".join(word[0].upper() + word[1:] for word in words) or "Rule"
    return joined if joined[0].isalpha() else f"Rule{joined}"
