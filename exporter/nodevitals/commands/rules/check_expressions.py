"""Checks that everything that expressions read exists: metrics, labels, values, job, thresholds.

Also finds PromQL that Prometheus 3 evaluates differently from Prometheus 2.
https://prometheus.io/docs/prometheus/latest/migration/
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence

from nodevitals import catalogue
from nodevitals.commands.rules.expression import Matcher, Selector, selectors, tokens
from nodevitals.commands.rules.findings import Finding, FindingId
from nodevitals.commands.rules.rule_files import Rule
from nodevitals.probe import Family

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


# Labels that Prometheus or the scrape job sets.
TARGET_LABELS = ("job", "instance", "cluster", "__name__")
# Families of other exporters; their labels are not in the catalogue.
FOREIGN = re.compile(
    r"up|scrape_\w+|ALERTS|npu_\w+|node_\w+|kube_\w+|container_\w+|DCGM_\w+|prometheus_\w+"
)
# Families of the hub, which are known where its package is installed.
OF_THE_HUB = re.compile(r"nodevitals_(?:check|hub)_\w+")
JOB = "nodevitals"
HUB_JOB = "nodevitals-hub"
THRESHOLD = "nodevitals:threshold"
# How an alert detects a missing threshold.
_WATCHED = re.compile(
    r'\babsent\s*\(\s*nodevitals:threshold\s*\{\s*job\s*=\s*""\s*,\s*threshold\s*=\s*"(\w+)"\s*(?:,\s*)?\}'
)


def check_expressions(
    rules: Sequence[Rule],
    families: Mapping[str, Family],
    of_the_hub: Mapping[str, Family],
    job: str | None,
) -> Iterator[Finding]:
    """What is wrong with the expressions of all rules; `job` as `check` takes it. Without the
    families of the hub, what reads them is not checked.
    """
    known = {**families, **of_the_hub}
    recorded = {rule.name for rule in rules if not rule.is_alert}
    for rule in rules:
        for line, text in changed_meanings(rule.expression):
            yield _finding(rule, line, "promql/prometheus3", text)
        for selector in selectors(rule.expression):
            family = known.get(selector.name)
            if family is not None:
                yield from _check_selector(rule, selector, family)
            elif not of_the_hub and OF_THE_HUB.fullmatch(selector.name):
                continue
            elif selector.name not in recorded and not FOREIGN.fullmatch(selector.name):
                name = selector.name or "a metric without a name"
                text = f"no probe exposes and no rule records {name}"
                yield _finding(rule, selector.line, "metric/unknown", text)
            if family is not None or selector.name == "up":
                yield from _check_job(rule, selector, job)


def check_thresholds(rules: Sequence[Rule]) -> Iterator[Finding]:
    """Thresholds that a rule reads and none records, and those whose absence raises no alert."""
    recorded = {
        rule.labels["threshold"]: rule
        for rule in rules
        if rule.name == THRESHOLD and "threshold" in rule.labels
    }
    if not recorded:  # then every use is an unknown metric
        return
    for rule in rules:
        for selector in selectors(rule.expression):
            for matcher in selector.matchers:
                chosen = (selector.name, matcher.label) == (THRESHOLD, "threshold")
                if chosen and not _matches_known(matcher, tuple(recorded)):
                    text = f"no rule records the threshold {matcher.value}"
                    yield _finding(rule, selector.line, "threshold/unknown", text)
    alerts = (rule.expression for rule in rules if rule.is_alert)
    watched = {name for expression in alerts for name in _WATCHED.findall(expression)}
    for name, rule in recorded.items():
        if name not in watched:
            text = f'no alert on absent({THRESHOLD}{{job="", threshold="{name}"}}): add it to '
            text += "ThresholdMissing"
            yield Finding(rule.file, rule.first_line, "threshold/unlisted", rule.name, text)


def _check_job(rule: Rule, selector: Selector, job: str | None) -> Iterator[Finding]:
    matchers = [matcher for matcher in selector.matchers if matcher.label == "job"]
    if not matchers:
        text = f'{selector.name} without job="{job or JOB}": a second scrape job would double it'
        yield _finding(rule, selector.line, "label/job", text)
    for matcher in matchers:
        if job is not None and matcher.operator == "=" and matcher.value not in (job, HUB_JOB):
            text = f'{selector.name} selects job="{matcher.value}", not "{job}"'
            yield _finding(rule, selector.line, "label/job", text)


def _check_selector(rule: Rule, selector: Selector, family: Family) -> Iterator[Finding]:
    for matcher in selector.matchers:
        if matcher.label in TARGET_LABELS:
            continue
        # The labels of node_info are the configuration's; so are some of an open family.
        if family != catalogue.NODE_INFO and not family.open and matcher.label not in family.labels:
            text = f"{family.name} has no label {matcher.label}"
            yield _finding(rule, selector.line, "label/unknown", text)
        values = family.closed.get(matcher.label)
        if values is not None and not _matches_known(matcher, values):
            text = f'{family.name}{{{matcher.label}{matcher.operator}"{matcher.value}"}}'
            text += f" matches none of {', '.join(values)}"
            yield _finding(rule, selector.line, "label/value", text)


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
