"""The findings about Prometheus and the rules that it has loaded, from its answers.

Prometheus prints an expression in its own way: other white space, parentheses, order of clauses
and durations, and no comments. So the sorted list of the names, strings, numbers and operators of
an expression is compared with the rules of this version (docs/adr/0031).
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from nodevitals.commands.doctor.findings import OK, PROBLEM, UNKNOWN, Finding, listed, printable
from nodevitals.commands.doctor.http import Answer, Endpoint
from nodevitals.commands.doctor.servers import FiringAlert, RuleGroup, Sample
from nodevitals.commands.rules.expression import Token, prometheus_seconds, tokens, unquoted
from nodevitals.commands.rules.site.values import Values, with_names
from nodevitals.commands.shipped import page
from nodevitals.commands.terminal import CommandError, document_error
from nodevitals.document import DocumentError, parse_yaml, read_file

PREFIX = "nodevitals"
THRESHOLDS = "nodevitals-thresholds"
"""A site sets its own numbers in this group; they are not compared."""
COPY = (
    "copy this version's rules and reload: nodevitals init DIR; cp -r DIR/prometheus/rules"
    " /etc/prometheus/; systemctl reload prometheus"
)
NO_RULES = (
    "add them to rule_files: nodevitals init DIR writes both; with the Prometheus operator, give"
    " the PrometheusRule the label that its ruleSelector wants: helm upgrade … --set"
    " rules.kind=PrometheusRule,rules.labels.release=RELEASE"
)
_PRINTED_TIME = re.compile(r"(?:[0-9]{1,15}(?:ms|[smhdwy])){1,8}")
_SYNTAX = ("(", ")", "{", "}", ",", "")

Rules = dict[str, "Counter[tuple[str, tuple[str, ...]]]"]


class Expected(NamedTuple):
    """The rules of a folder: by group, the name and the fingerprint of each rule; the names of the
    thresholds; the labels of the alerts.
    """

    rules: Rules
    thresholds: frozenset[str]
    alerts: tuple[Mapping[str, str], ...]


class _RuleShape(msgspec.Struct):
    record: str = ""
    alert: str = ""
    expr: Any = ""
    labels: dict[str, Any] = {}


class _GroupShape(msgspec.Struct):
    name: str
    rules: list[_RuleShape] = []


class _FileShape(msgspec.Struct):
    groups: list[_GroupShape] = []


def read_expected(folder: Path, job: str) -> Expected:
    """The rules in all files of a folder, rendered for a scrape job. Raises CommandError."""
    paths = sorted(folder.glob("*.yaml"))
    if not paths:
        raise CommandError(f"{folder}: no rule file (*.yaml) here; choose another --rules")
    rules: Rules = {}
    thresholds, alerts = set(), []
    for path in paths:
        for group in _groups(path, job):
            own = rules.setdefault(group.name, Counter())
            for rule in group.rules:
                own[rule.alert or rule.record, _fingerprint(group.name, str(rule.expr))] += 1
                labels = {name: str(value) for name, value in rule.labels.items()}
                if rule.alert:
                    alerts.append({**labels, "alertname": rule.alert})
                elif "threshold" in labels:
                    thresholds.add(labels["threshold"])
    return Expected(rules, frozenset(thresholds), tuple(alerts))


def _groups(path: Path, job: str) -> list[_GroupShape]:
    try:
        text = with_names(read_file(path).decode(), Values(job=job))
        return msgspec.convert(parse_yaml(text.encode()) or {}, _FileShape).groups
    except DocumentError as error:
        raise document_error(str(path), error) from None
    except (msgspec.ValidationError, UnicodeDecodeError) as error:
        raise CommandError(f"{path}: not a rule file: {error}") from None


def fingerprint(expression: str) -> tuple[str, ...]:
    """The sorted parts of an expression, equal for all ways to write it."""
    parts = []
    read = tokens(expression)
    for index, token in enumerate(read):
        if token.kind == "string":
            parts.append(repr(unquoted(token.text)))
        elif token.kind in ("range", "number"):
            parts.append(
                _PRINTED_TIME.sub(lambda match: _milliseconds(match[0]), _number(token.text))
            )
        elif token.text not in _SYNTAX and not _is_without_labels(read, index):
            parts.append(token.text)
    return tuple(sorted(parts))


def _is_without_labels(read: Sequence[Token], index: int) -> bool:
    """Whether the token is the `by` of `by ()`, which Prometheus does not print."""
    return [token.text for token in read[index : index + 3]] == ["by", "(", ")"]


def _number(text: str) -> str:
    try:
        return repr(float(text))
    except ValueError:
        return text


def _milliseconds(duration: str) -> str:
    return str(round(prometheus_seconds(duration) * 1000))


def _fingerprint(group: str, expression: str) -> tuple[str, ...]:
    return () if group == THRESHOLDS else fingerprint(expression)


def rule_findings(
    loaded: Iterable[RuleGroup], expected: Expected, version: str
) -> Iterator[Finding]:
    """Whether all rules of this version are loaded, work, and are evaluated in time."""
    groups = [group for group in loaded if group.name in expected.rules]
    names = {group.name for group in groups}
    missing = sorted(expected.rules.keys() - names)
    if not names:
        text = f"none of the {len(missing)} rule groups of nodevitals is loaded"
        yield Finding("rules", PROBLEM, f"{text}: no alert can fire", NO_RULES)
        return
    if missing:
        text = f"{len(missing)} of {len(expected.rules)} rule groups are not loaded"
        yield Finding("rules", PROBLEM, f"{text}: {listed(missing)}", COPY)
    differing = sorted(_differing(groups, expected))
    if differing:
        text = f"{len(differing)} rules are not those of version {version}: {listed(differing)}"
        remedy = f"{COPY}; of rules that you rendered, name the folder: --rules FOLDER"
        yield Finding("rules", PROBLEM, text, remedy)
    elif not missing:
        count = sum(len(group.rules) for group in groups)
        text = f"{count} rules in {len(names)} groups, all of version {version}"
        yield Finding("rules", OK, text)
    yield from _health(groups)
    yield from _speed(groups)


def _differing(groups: Iterable[RuleGroup], expected: Expected) -> set[str]:
    loaded: Rules = {}
    for group in groups:
        own = loaded.setdefault(group.name, Counter())
        for rule in group.rules:
            own[rule.name, _fingerprint(group.name, rule.query)] += 1
    differing = set()
    for name, own in loaded.items():
        wanted = expected.rules[name]
        differing |= {printable(rule, 60) for rule, _ in (wanted - own)}
        differing |= {printable(rule, 60) for rule, _ in (own - wanted)}
    return differing


def _health(groups: Sequence[RuleGroup]) -> Iterator[Finding]:
    rules = [rule for group in groups for rule in group.rules]
    broken = [rule for rule in rules if rule.health == "err"]
    waiting = [rule for rule in rules if rule.health not in ("ok", "err")]
    if broken:
        first = broken[0]
        text = f"{len(broken)} rules fail; {first.name}: {first.lastError}"
        remedy = "see Status > Rules; two jobs that scrape one node are the usual cause"
        yield Finding("rule evaluation", PROBLEM, printable(text), remedy)
    elif waiting:
        text = f"{len(waiting)} of {len(rules)} rules were not evaluated yet"
        yield Finding("rule evaluation", UNKNOWN, text, "wait for two evaluation intervals")


def _speed(groups: Sequence[RuleGroup]) -> Iterator[Finding]:
    slow = [group for group in groups if group.evaluationTime > group.interval > 0]
    if slow:
        worst = max(slow, key=lambda group: group.evaluationTime / group.interval)
        text = f"{len(slow)} groups take longer than their interval; {worst.name}"
        text += f" takes {worst.evaluationTime:.1f} s of {worst.interval:.0f} s"
        remedy = f"give Prometheus more CPU, or shard it: {page('docs/several-clusters.md')}"
        yield Finding("rule evaluation", PROBLEM, text, remedy)
    elif all(rule.health == "ok" for group in groups for rule in group.rules):
        longest = max((group.evaluationTime for group in groups), default=0.0)
        yield Finding("rule evaluation", OK, f"no errors; the slowest group takes {longest:.2f} s")


LOWEST = (2, 42)
_VERSION = re.compile(r"v?([0-9]{1,6})\.([0-9]{1,6})")
_ASK_FOR = {
    401: "name a user and a password: --{option}.http.config.file FILE (basic_auth)",
    403: "ask for access to its API, or doctor where it is open",
    404: "give its URL without /api: --{option} http://HOST:PORT[/PREFIX]",
}


def no_answer(check: str, option: str, server: Endpoint, answer: Answer) -> Finding:
    """The finding about a server without an answer, or with a wrong one."""
    remedy = f"check that it runs: curl -v {server.shown}"
    if "ertificate" in answer.problem:
        remedy = f"name its CA: --{option}.http.config.file FILE (tls_config.ca_file)"
    elif answer.status:
        remedy = _ASK_FOR.get(
            answer.status, f"check the URL, and what is between: curl -v {server.shown}"
        ).format(option=option)
    return Finding(check, answer.state, f"{server.shown}: {answer.problem}", remedy)


def server_findings(server: Endpoint, version: str, ready: Answer) -> Iterator[Finding]:
    """The version, and whether the server is ready."""
    shown = printable(version, 40)
    match = _VERSION.match(version)
    if match and (int(match[1]), int(match[2])) < LOWEST:
        text = f"version {shown}; the rules need 2.42 or later"
        yield Finding("prometheus", PROBLEM, text, "upgrade Prometheus")
    elif ready.status != 200 or b"ready" not in ready.body.lower():
        problem = ready.problem or "not an answer of Prometheus"
        text = f"{server.shown}, version {shown}: not ready: {problem}"
        remedy = "wait for the replay of its log: journalctl -u prometheus | tail"
        yield Finding("prometheus", PROBLEM, text, remedy)
    else:
        yield Finding("prometheus", OK, f"{server.shown} is ready; version {shown}")


def alert_findings(
    groups: Iterable[RuleGroup], ours: Collection[str], instances: Collection[str]
) -> Iterator[Finding]:
    """The firing alerts of this node in the groups `ours`."""
    firing = [
        alert
        for group in groups
        if group.name in ours
        for rule in group.rules
        for alert in rule.alerts
        if alert.state == "firing" and alert.labels.get("instance") in instances
    ]
    loud = [alert for alert in firing if alert.labels.get("severity") in ("critical", "warning")]
    if loud:
        names = sorted({_alert_name(alert) for alert in loud})
        text = f"firing for this node, of the shipped alerts: {listed(names, 8)}"
        remedy = "follow the runbook of each: the URL is its annotation runbook_url"
        yield Finding("alerts", PROBLEM, text, remedy)
    elif instances:
        yield Finding("alerts", OK, "no shipped alert fires for this node")


def _alert_name(alert: FiringAlert) -> str:
    labels = alert.labels
    return printable(f"{labels.get('alertname', '')} ({labels.get('severity', '')})", 80)


def threshold_findings(samples: Iterable[Sample], expected: Collection[str]) -> Iterator[Finding]:
    """Whether every threshold has a current value."""
    missing = sorted(set(expected) - {entry.metric.get("threshold", "") for entry in samples})
    if missing:
        text = f"{len(missing)} thresholds have no value: {listed(missing)}"
        remedy = "load rules/thresholds.yaml, or complete your copy; then wait for one interval"
        yield Finding("thresholds", PROBLEM, f"{text}: their alerts cannot fire", remedy)
    else:
        yield Finding("thresholds", OK, f"all {len(expected)} have a value")


def manager_findings(urls: Iterable[str]) -> Iterator[Finding]:
    """Whether Prometheus knows an Alertmanager."""
    shown = sorted(printable(url.removesuffix("/api/v2/alerts"), 80) for url in urls)
    if shown:
        yield Finding("notifications", OK, f"Prometheus sends alerts to {listed(shown)}")
    else:
        text = "Prometheus knows no Alertmanager: no alert is sent"
        remedy = "add it below alerting.alertmanagers in prometheus.yml, and reload Prometheus"
        yield Finding("notifications", PROBLEM, text, remedy)


def missing_part(check: str, answer: Answer) -> Finding:
    """The finding where one of several queries has no answer."""
    remedy = "call doctor again; raise --timeout where the server is slow"
    return Finding(check, answer.state or UNKNOWN, f"not known: {answer.problem}", remedy)
