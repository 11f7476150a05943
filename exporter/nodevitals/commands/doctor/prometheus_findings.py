"""Prometheus: its answers in, findings out."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator

from nodevitals.commands.doctor.asking import Answer, Endpoint
from nodevitals.commands.doctor.findings import OK, PROBLEM, UNKNOWN, Finding, listed, printable
from nodevitals.commands.doctor.servers import FiringAlert, RuleGroup, Sample

LOWEST = (2, 42)
_VERSION = re.compile(r"v?([0-9]{1,6})\.([0-9]{1,6})")
_ASK_FOR = {
    401: "name a user and a password: --{option}.http.config.file FILE (basic_auth)",
    403: "ask for access to its API, or doctor where it is open",
    404: "give its URL without /api: --{option} http://HOST:PORT[/PREFIX]",
}


def no_answer(check: str, option: str, server: Endpoint, answer: Answer) -> Finding:
    """A server that gives no answer, or not its own."""
    remedy = f"check that it runs: curl -v {server.shown}"
    if "ertificate" in answer.problem:
        remedy = f"name its CA: --{option}.http.config.file FILE (tls_config.ca_file)"
    elif answer.status:
        remedy = _ASK_FOR.get(
            answer.status, f"check the URL, and what is between: curl -v {server.shown}"
        ).format(option=option)
    return Finding(check, answer.state, f"{server.shown}: {answer.problem}", remedy)


def server_findings(server: Endpoint, version: str, ready: Answer) -> Iterator[Finding]:
    """Version, and whether it is ready."""
    shown = printable(version, 40)
    found = _VERSION.match(version)
    if found and (int(found[1]), int(found[2])) < LOWEST:
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
    """The alerts of this node that fire now, of the groups `ours`."""
    firing = [
        alert
        for group in groups
        if group.name in ours
        for rule in group.rules
        for alert in rule.alerts
        if alert.state == "firing" and alert.labels.get("instance") in instances
    ]
    loud = [one for one in firing if one.labels.get("severity") in ("critical", "warning")]
    if loud:
        names = sorted({_alert_name(one) for one in loud})
        text = f"{len(loud)} alerts of this node fire: {listed(names, 8)}"
        remedy = "follow the runbook of each: rules/runbooks/ALERT.md, or its runbook_url"
        yield Finding("alerts", PROBLEM, text, remedy)
    elif instances:
        yield Finding("alerts", OK, "no alert of this node fires")


def _alert_name(alert: FiringAlert) -> str:
    labels = alert.labels
    return printable(f"{labels.get('alertname', '')} ({labels.get('severity', '')})", 80)


def threshold_findings(found: Iterable[Sample], expected: Collection[str]) -> Iterator[Finding]:
    """Whether every threshold has a value now."""
    missing = sorted(set(expected) - {one.metric.get("threshold", "") for one in found})
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
    """One question of several without an answer."""
    remedy = "call doctor again; raise --timeout where the server is slow"
    return Finding(check, answer.state or UNKNOWN, f"not known: {answer.problem}", remedy)
