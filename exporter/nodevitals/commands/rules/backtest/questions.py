"""The queries for each alert. In: rules. Out: expressions, labels and waits.

For an alert on a recorded series alone, such as `nodevitals:fault{fault="…"}`, the expressions that
record it are queried: a server that never had the rules can answer them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import msgspec

from nodevitals.commands.rules.expression import Matcher, prometheus_seconds, selectors
from nodevitals.commands.rules.findings import Finding
from nodevitals.commands.rules.routes import holds
from nodevitals.commands.rules.rule_files import Rule, read_rules
from nodevitals.commands.terminal import FOUND_WRONG, CommandError

_SELECTOR = re.compile(r"[a-zA-Z0-9_:]{1,200}(?:\{[^{}]{0,2000}\})?")
_WITH_MATCHERS = re.compile(r"(?<![a-zA-Z0-9_:])[a-zA-Z0-9_:]{1,200}\{[^{}]{0,2000}\}")
_CONSTANT = re.compile(r"vector\([^()]*\)")
_LABEL = re.compile(r"\{\{ *\$labels\.(\w+) *\}\}")
_EMPTY_WITHOUT_METRICS = re.compile(r"(?!\s*absent)")


class Question(msgspec.Struct, frozen=True):
    """One expression of an alert; `wait` and `keep_firing` in seconds."""

    alert: str
    severity: str
    expression: str
    labels: tuple[dict[str, str], ...]
    """Labels that are set on each series: first those of the recording rule, then the alert's."""
    matchers: tuple[Matcher, ...]
    """What the alert requires of the recorded series."""
    wait: float
    keep_firing: float
    recorded: tuple[str, ...]
    """Names that only rules record."""
    metrics: tuple[str, ...]
    """Names that the exporters expose."""

    def labels_of(self, series: Mapping[str, str]) -> dict[str, str] | None:
        """The labels of the alert for a series; None where the alert does not read the series."""
        labels = {name: value for name, value in series.items() if name != "__name__"}
        first, last = self.labels
        labels.update(first)
        if not matches(self.matchers, labels):
            return None
        own = {name: _expanded(value, labels) for name, value in last.items()}
        labels.update(own, alertname=self.alert)
        return {name: value for name, value in labels.items() if value}

    @property
    def lead_seconds(self) -> float:
        """Time before the span that decides whether the alert fires at its beginning."""
        return self.wait + self.keep_firing

    @property
    def needs_metrics(self) -> bool:
        """Whether the expression is empty where its metrics are missing."""
        return bool(self.metrics and _EMPTY_WITHOUT_METRICS.match(self.expression))


def read_questions(folder: Path) -> list[Question]:
    """The questions of the rule files (*.yaml) in a folder. Raises CommandError."""
    if next(folder.glob("*.yaml"), None) is None:
        raise CommandError(f"{folder}: no rule file (*.yaml) here; choose another --rules")
    findings: list[Finding] = []
    rules = [
        rule for file in read_rules(sorted(folder.glob("*.yaml")), findings) for rule in file.rules
    ]
    if findings:
        raise CommandError("\n".join(map(str, findings)), FOUND_WRONG)
    records: dict[str, list[Rule]] = {}
    for rule in rules:
        if not rule.is_alert:
            records.setdefault(rule.name, []).append(rule)
    return [question for rule in rules if rule.is_alert for question in _questions(rule, records)]


def _questions(alert: Rule, records: Mapping[str, Sequence[Rule]]) -> Iterator[Question]:
    try:
        waits = [prometheus_seconds(text or "0") for text in (alert.wait, alert.keep_firing_for)]
    except ValueError as error:
        raise CommandError(f"{alert.file}: {alert.name}: {error}", FOUND_WRONG) from None
    for expression, labels, matchers in _sources(alert, records):
        text = _with_constants(expression, records)
        names = sorted({selector.name for selector in selectors(text)} - {"", "inf", "nan"})
        yield Question(
            alert=alert.name,
            severity=alert.labels.get("severity", labels.get("severity", "")),
            expression=text,
            labels=(labels, alert.labels),
            matchers=matchers,
            wait=waits[0],
            keep_firing=waits[1],
            # A name without a colon is exposed by one exporter and recorded for another.
            recorded=tuple(name for name in names if ":" in name),
            metrics=tuple(name for name in names if ":" not in name and name != "ALERTS"),
        )


def _sources(
    alert: Rule, records: Mapping[str, Sequence[Rule]]
) -> Iterator[tuple[str, dict[str, str], tuple[Matcher, ...]]]:
    """The expressions that an alert evaluates, with the labels that their rules add."""
    selector = next(selectors(alert.expression), None)
    rules = records.get(selector.name, ()) if selector else ()
    if selector is None or not rules or not _SELECTOR.fullmatch(alert.expression.strip()):
        yield alert.expression, {}, ()
        return
    for rule in rules:
        fixed = [matcher for matcher in selector.matchers if matcher.label in rule.labels]
        if matches(fixed, rule.labels):
            yield rule.expression, rule.labels, selector.matchers


def _with_constants(expression: str, records: Mapping[str, Sequence[Rule]]) -> str:
    """An expression in which the value of each threshold replaces its recorded series."""

    def value(match: re.Match[str]) -> str:
        selector = next(selectors(match[0]))
        rules = [
            rule
            for rule in records.get(selector.name, ())
            if matches(selector.matchers, rule.labels)
        ]
        is_constant = len(rules) == 1 and _CONSTANT.fullmatch(rules[0].expression.strip())
        return rules[0].expression.strip() if is_constant else match[0]

    return _WITH_MATCHERS.sub(value, expression)


def matches(matchers: Sequence[Matcher], labels: Mapping[str, str]) -> bool:
    """Whether labels match; a label that is missing is ''."""
    return all(
        holds(matcher.operator, matcher.value, labels.get(matcher.label, ""))
        for matcher in matchers
    )


def _expanded(template: str, labels: Mapping[str, str]) -> str:
    """The value of an alert's label; `{{ $labels.x }}` is the only template that is known."""
    return _LABEL.sub(lambda match: labels.get(match[1], ""), template)
