"""The labels that a rule gives its alert: its own, and those of the faults that it reads.

In: rules. Out: label sets. Labels of devices and nodes come from the series and are unknown here.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from nodevitals.commands.rules.expression import Selector, selectors, tokens
from nodevitals.commands.rules.rule_files import Rule

FAULT = "nodevitals:fault"
LabelSet = dict[str, str]


def recorded_faults(rules: Iterable[Rule]) -> dict[str, list[LabelSet]]:
    """The labels of the rules that record each fault; a fault may have one rule per severity."""
    recorded: dict[str, list[LabelSet]] = {}
    for rule in rules:
        if rule.name == FAULT and "fault" in rule.labels:
            recorded.setdefault(rule.labels["fault"], []).append(rule.labels)
    return recorded


def label_sets(rule: Rule, faults: dict[str, list[LabelSet]]) -> list[LabelSet]:
    """The label sets that the alert may have, without the labels of its series; at least one."""
    fault_labels: list[LabelSet] = []
    for selector in selectors(_first_operands(rule.expression)):
        wanted = _fault_matcher(selector)
        for fault in faults if wanted else ():
            if re.fullmatch(wanted, fault):
                fault_labels += _selected(selector, faults[fault])
    sets = [{**labels, **rule.labels} for labels in fault_labels] or [dict(rule.labels)]
    return [labels for index, labels in enumerate(sets) if labels not in sets[:index]]


def severities(sets: Sequence[LabelSet]) -> list[str]:
    """The severities in label sets, most severe first; '' for an unknown one."""
    order = ("critical", "warning", "info", "none", "")
    return sorted({labels.get("severity", "") for labels in sets}, key=order.index)


def _first_operands(expression: str) -> str:
    """The expression up to its first `and` or `unless`: the alert has the labels left of it."""
    for token in tokens(expression):
        if token.kind == "name" and token.text in ("and", "unless"):
            return expression[: token.start]
    return expression


def _fault_matcher(selector: Selector) -> str:
    """A pattern of the faults that a selector reads; '' where it names none."""
    if not selector.name.startswith(FAULT):
        return ""
    matchers = [matcher for matcher in selector.matchers if matcher.label == "fault"]
    patterns = [
        matcher.value if matcher.operator == "=~" else re.escape(matcher.value)
        for matcher in matchers
        if matcher.operator in ("=", "=~")
    ]
    return patterns[0] if patterns else ""


def _selected(selector: Selector, recorded: Iterable[LabelSet]) -> Iterable[LabelSet]:
    """The label sets that the selector's other matchers do not exclude, with what they add."""
    equal = {
        matcher.label: matcher.value for matcher in selector.matchers if matcher.operator == "="
    }
    for labels in recorded:
        if all(labels.get(label, value) == value for label, value in equal.items()):
            yield {**labels, **equal}
