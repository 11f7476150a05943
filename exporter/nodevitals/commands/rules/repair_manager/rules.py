"""RepairManager's rules as sampled rules, with its exporter's metrics replaced by ours.

That exporter has nvidia-smi's figures as `nvidiasmi_*`, in percent, with the device as
`minor_number`.
"""

from __future__ import annotations

import re
from typing import Any, Literal

from nodevitals.commands.rules.repair_manager.settings import (
    RULES_OUT,
    ConvertedKey,
    Missing,
    parse_seconds,
)
from nodevitals.commands.rules.sampled_rules import SampledRule, problems_of

_SELECTOR = re.compile(r"\b(?P<name>nvidiasmi_\w+)\s*(?:\{(?P<labels>[^{}]*)\})?")
_LABEL = re.compile(
    r"""\s{0,20}(\w{1,100})\s{0,20}(=~|!~|!=|=)\s{0,20}"""
    r"""("(?:[^"\\]|\\.){0,500}"|'(?:[^'\\]|\\.){0,500}')\s{0,20}(?:,|$)"""
)
_JOB = 'job="nodevitals"'
_ECC = {
    "volatile_single": ("corrected", "volatile"),
    "volatile_double": ("uncorrected", "volatile"),
    "aggregated_single": ("corrected", "aggregate"),
    "aggregated_double": ("uncorrected", "aggregate"),
}
_RETIRED = {"single": "single_bit", "double": "double_bit"}
_GAUGES = {
    "nvidiasmi_utilization_gpu": "(100 * nodevitals_accelerator_utilization_ratio{})",
    "nvidiasmi_utilization_memory": (
        "(100 * nodevitals_accelerator_memory_used_bytes{} "
        "/ nodevitals_accelerator_memory_total_bytes{})"
    ),
    "nvidiasmi_temperature": "nodevitals_accelerator_temperature_celsius{}",
}


def map_metrics(expression: str) -> tuple[str, str]:
    """The expression with our metrics, and a note about it for the report: '' where none of them
    is in it.
    """
    replaced: list[str] = []
    kept: list[str] = []

    def replace(match: re.Match[str]) -> str:
        ours = _counterpart(match["name"], match["labels"] or "")
        (replaced if ours else kept).append(match["name"])
        return ours or match[0]

    text = _SELECTOR.sub(replace, expression)
    notes = [f", {name} replaced" for name in dict.fromkeys(replaced)]
    notes += [f", {name} has no counterpart" for name in dict.fromkeys(kept)]
    return text, "".join(notes)


def _counterpart(name: str, labels: str) -> str:
    """Our selector, or '' where there is none."""
    pairs = _LABEL.findall(labels)
    if "".join(_LABEL.split(labels)[::4]).strip():
        return ""
    selected = [_JOB]
    kind = ""
    for label, operator, quoted in pairs:
        if label == "type" and operator == "=":
            kind = quoted[1:-1]
        elif label == "type":
            return ""
        else:
            ours = "device" if label == "minor_number" else label
            selected.append(f"{ours}{operator}{quoted}")
    if name in _GAUGES and not kind:
        return _GAUGES[name].replace("{}", "{" + ", ".join(selected) + "}")
    if name == "nvidiasmi_ecc_error_count" and kind in _ECC:
        errors, lifetime = _ECC[kind]
        selected += [f'kind="{errors}"', f'lifetime="{lifetime}"']
        return "nodevitals_accelerator_ecc_errors_total{" + ", ".join(selected) + "}"
    if name == "nvidiasmi_retired_page_count" and kind in _RETIRED:
        selected.append(f'cause="{_RETIRED[kind]}"')
        return "nodevitals_nvidia_retired_pages{" + ", ".join(selected) + "}"
    return ""


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
