"""Checks that everything that expressions read exists: metrics, labels, values, job, thresholds.

Also finds PromQL that Prometheus 3 evaluates differently from Prometheus 2.
https://prometheus.io/docs/prometheus/latest/migration/
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator, Sequence

from nodevitals.commands.rules.expression import Matcher, Selector, selectors, tokens
from nodevitals.commands.rules.findings import Finding, FindingId
from nodevitals.commands.rules.promql.knowledge import TARGET_LABELS, Knowledge
from nodevitals.commands.rules.rule_files import Rule

_MANY = 12
_UNIT_SECONDS = {"ms": 0.001, "s": 1, "m": 60, "h": 3600, "d": 86400, "w": 604800, "y": 31536000}
_COUNTING = re.compile(r"\b(?:count|sum)_over_time\s*\([^()\[\]]*\[[^\[\]:]*\]")
_RENAMED = re.compile(r"\bholt_winters\s*\(")
_DURATION_PART = re.compile(r"(?<!\d)(\d{1,15})(ms|[smhdwy])")
# `.+` and `.*` alone match a whole value with and without newlines, so they do not change.
_PLAIN_DOT = re.compile(r"\.(?![+*])")
_LITERAL_DOT = re.compile(r"\\\.|\[\.\]")


def changed_meanings(expression: str) -> Iterator[tuple[int, str]]:
    """Pairs of a line within the expression (0: the first) and what changes there."""
    yield from _whole_subqueries(expression)
    for match in _COUNTING.finditer(expression):
        line = expression.count("\n", 0, match.start())
        yield line, f"{match[0]} counts samples: the left end of a range is open on Prometheus 3"
    for match in _RENAMED.finditer(expression):
        line = expression.count("\n", 0, match.start())
        yield line, "holt_winters has another name on Prometheus 3"
    for selector in selectors(expression):
        for matcher in selector.matchers:
            if "~" in matcher.operator and _PLAIN_DOT.search(_LITERAL_DOT.sub("", matcher.value)):
                text = f"a dot in {matcher.value!r} also matches a newline on Prometheus 3"
                yield selector.line, text


def _whole_subqueries(expression: str) -> Iterator[tuple[int, str]]:
    """Subqueries whose range is a multiple of their step."""
    for token in tokens(expression):
        if token.kind == "range" and ":" in token.text:
            length, _, step = token.text[1:-1].partition(":")
            seconds, step_seconds = _seconds(length), _seconds(step)
            if step_seconds and abs(seconds / step_seconds - round(seconds / step_seconds)) < 1e-9:
                text = f"{token.text} has one sample more on Prometheus 2 than on 3"
                yield token.line, f"{text}: shorten the range by 1 ms"


def _seconds(duration: str) -> float:
    parts = _DURATION_PART.findall(duration)
    return sum(float(number) * _UNIT_SECONDS[unit] for number, unit in parts)


# Families of other exporters; their labels are not in the catalogue.
FOREIGN = re.compile(
    r"up|scrape_\w+|ALERTS|npu_\w+|node_\w+|kube_\w+|container_\w+|DCGM_\w+|prometheus_\w+"
)
# Families of the hub, which are known where its package is installed.
OF_THE_HUB = re.compile(r"nodevitals_(?:check|hub)_\w+")
OURS = re.compile(r"nodevitals[_:].*")
THRESHOLD = "nodevitals:threshold"
# How an alert detects a missing threshold.
_WATCHED = re.compile(
    r'\babsent\s*\(\s*nodevitals:threshold\s*\{\s*job\s*=\s*""\s*,\s*threshold\s*=\s*"(\w+)"\s*(?:,\s*)?\}'
)


def check_selectors(rules: Sequence[Rule], known: Knowledge) -> Iterator[Finding]:
    """Names, labels, label values and jobs of our metrics that do not exist. Without the families
    of the hub, what reads them is not checked.
    """
    for rule in rules:
        for selector in selectors(rule.expression):
            if not OURS.fullmatch(selector.name):
                continue
            if selector.name in known.families or selector.name in known.recorded:
                yield from _check_matchers(rule, selector, known)
            elif known.hub or not OF_THE_HUB.fullmatch(selector.name):
                names = [*known.families, *known.recorded]
                near = difflib.get_close_matches(selector.name, names, n=1, cutoff=0.8)
                text = f"no probe exposes and no rule records {selector.name}"
                text += f"; did you mean {near[0]}?" if near else ""
                yield _finding(rule, selector.line, "metric/unknown", text)


def check_strictly(rules: Sequence[Rule], known: Knowledge) -> Iterator[Finding]:
    """What only rules of this project must not have."""
    for rule in rules:
        for line, text in changed_meanings(rule.expression):
            yield _finding(rule, line, "promql/prometheus3", text)
        for selector in selectors(rule.expression):
            name = selector.name
            exists = name in known.families or name in known.recorded or OURS.fullmatch(name)
            if not exists and not FOREIGN.fullmatch(name):
                text = f"no probe exposes and no rule records {name or 'a metric without a name'}"
                yield _finding(rule, selector.line, "metric/unknown", text)
            has_job = any(matcher.label == "job" for matcher in selector.matchers)
            if (name in known.families or name == "up") and not has_job:
                text = f'{name} without job="{known.job}": a second scrape job would double it'
                yield _finding(rule, selector.line, "label/job", text)


def check_thresholds(rules: Sequence[Rule]) -> Iterator[Finding]:
    """Thresholds whose absence raises no alert."""
    recorded = {
        rule.labels["threshold"]: rule
        for rule in rules
        if rule.name == THRESHOLD and "threshold" in rule.labels
    }
    alerts = (rule.expression for rule in rules if rule.is_alert)
    watched = {name for expression in alerts for name in _WATCHED.findall(expression)}
    for name, rule in recorded.items():
        if name not in watched:
            text = f'no alert on absent({THRESHOLD}{{job="", threshold="{name}"}}): add it to '
            text += "ThresholdMissing"
            yield Finding(rule.file, rule.first_line, "threshold/unlisted", rule.name, text)


def _check_matchers(rule: Rule, selector: Selector, known: Knowledge) -> Iterator[Finding]:
    # The labels of the selected series without those that the matchers themselves name.
    labels = known.metric(selector.name).labels
    for matcher in selector.matchers:
        name, label = selector.name, matcher.label
        if label == "job" and name in known.families and not known.has_job(name, matcher):
            text = f'{name}{{job{matcher.operator}"{matcher.value}"}}: its job is {known.job}'
            yield _finding(rule, selector.line, "label/job", text)
        if label in TARGET_LABELS or (matcher.operator, matcher.value) == ("=", ""):
            continue
        if labels is not None and label not in labels:
            yield _finding(rule, selector.line, "label/unknown", f"{name} has no label {label}")
        values = known.values(name, label)
        if values is not None and not _matches_known(matcher, values):
            text = f'{name}{{{label}{matcher.operator}"{matcher.value}"}} matches none of '
            text += shortened(matcher.value, values)
            yield _finding(rule, selector.line, "label/value", text)


def shortened(wanted: str, values: Sequence[str]) -> str:
    """The values; of many, those that are most like the wanted one."""
    if len(values) <= _MANY:
        return ", ".join(values)
    near = difflib.get_close_matches(wanted, values, n=3)
    return f"{len(values)} values{'; did you mean ' + ' or '.join(near) + '?' if near else ''}"


def _matches_known(matcher: Matcher, values: tuple[str, ...]) -> bool:
    """Whether every value that a matcher names exists: a misspelt one never matches."""
    if "~" not in matcher.operator:
        return matcher.value == "" or matcher.value in values
    try:
        parts = [re.compile(part) for part in matcher.value.split("|")]
    except re.error:
        return True  # alternatives within parentheses
    return all(any(map(part.fullmatch, values)) for part in parts)


def _finding(rule: Rule, line: int, name: FindingId, text: str) -> Finding:
    return Finding(rule.file, rule.expression_line + line, name, rule.name, text)
