"""What the rules of Prometheus would have recorded in the past, and the alerts of then.

Prometheus evaluates rules only for the present. Here every expression is asked over the past, each
after those that it reads, and the results are written back as the recorded series, and as ALERTS
and ALERTS_FOR_STATE, from which Prometheus restores how long alerts have been active.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from testbed.site.series import Series
from testbed.waits import seconds

_NAME = re.compile(r"[a-zA-Z_:][a-zA-Z0-9_:]*")
_LABEL = re.compile(r"\{\{ \$labels\.(\w+) \}\}")
# What comes from alerts and acts on some of them begins with the present: confirmed faults, and, in
# the file of the incidents, what an incident mutes.
_FEEDBACK = {
    "nodevitals:node_maintenance_source": {"nodevitals:fault_confirmed"},
    "RepeatedFaults": {"nodevitals:fault_confirmed", "nodevitals:node_returns:count7d"},
}
_EXACT = re.compile(r'nodevitals:fault\{fault="(\w+)"')


def ordered(rules: Path) -> list[dict[str, Any]]:
    """Return all rules, each after those whose series it reads; rules that read themselves, or
    each other, come in the order of the files.
    """
    found = [
        rule | {"file": file.name, "interval": seconds(group.get("interval", "15s"))}
        for file in sorted(rules.glob("*.yaml"))
        for group in yaml.safe_load(file.read_text())["groups"]
        for rule in group["rules"]
    ]
    makers: dict[str, list[int]] = {}
    for number, rule in enumerate(found):
        for name in _made(rule):
            makers.setdefault(name, []).append(number)
    order: dict[int, None] = {}
    visited: set[int] = set()

    def visit(number: int) -> None:
        if number in visited:
            return
        visited.add(number)
        for name in _read(found[number]):
            for maker in makers.get(name, ()):
                visit(maker)
        order[number] = None

    for number in range(len(found)):
        visit(number)
    return [found[number] for number in order]


def _made(rule: dict[str, Any]) -> list[str]:
    if "alert" in rule:
        return ["ALERTS", "ALERTS_FOR_STATE"]
    # Faults that read other faults name them.
    fault = rule.get("labels", {}).get("fault", "")
    return [rule["record"], f"{rule['record']}/{fault}"]


def _read(rule: dict[str, Any]) -> set[str]:
    """Return the names that a rule reads; one fault only where it names it."""
    expression = rule["expr"]
    names = set(_NAME.findall(expression))
    exact = {f"nodevitals:fault/{fault}" for fault in _EXACT.findall(expression)}
    if len(exact) == expression.count("nodevitals:fault{") and exact:
        names.discard("nodevitals:fault")
    names -= _FEEDBACK.get(rule.get("record") or rule.get("alert") or "", set())
    if rule["file"] == "fleet.yaml":
        names.discard("ALERTS")
    return names | exact


def passes(rule: dict[str, Any]) -> int:
    """Return how often to evaluate a rule: what reads its own past comes to rest after some."""
    return 3 if rule.get("record") in _NAME.findall(rule["expr"]) else 1


def evaluated(rule: dict[str, Any], moments: list[float]) -> list[float]:
    """Return the times at which a rule's group is evaluated: sums over time count its samples."""
    if "alert" in rule:
        return moments
    return [moment for moment in moments if moment % rule["interval"] == 0] or moments


def results(
    rule: dict[str, Any],
    answer: list[dict[str, Any]],
    moments: list[float],
    written: dict[str, set[float]],
) -> Iterator[Series]:
    """Return what a rule would have made of a range query's answer, without the times that are
    `written`, by series; they are added to it.
    """
    for one in answer:
        # The same series may have come with and without its name.
        labels = {name: text for name, text in one["metric"].items() if name != "__name__"}
        before = written.setdefault(str(labels), set())
        values = {float(moment): float(value) for moment, value in one["values"]}
        values = {moment: value for moment, value in values.items() if moment not in before}
        before.update(values)
        labels |= {name: _filled(text, labels) for name, text in rule.get("labels", {}).items()}
        if "record" in rule:
            yield Series(rule["record"], labels, values.get)
        else:
            yield from _alerts(rule, labels, values, moments)


def _filled(template: str, labels: dict[str, str]) -> str:
    return _LABEL.sub(lambda found: labels.get(found[1], ""), template)


def _alerts(
    rule: dict[str, Any], labels: dict[str, str], values: dict[float, float], moments: list[float]
) -> Iterator[Series]:
    wait, since = seconds(rule.get("for", "0s")), None
    states: dict[str, dict[float, float]] = {"pending": {}, "firing": {}}
    active: dict[float, float] = {}
    for moment in moments:
        since = (since or moment) if moment in values else None
        if since:
            states["firing" if moment - since >= wait else "pending"][moment] = 1.0
            active[moment] = since
    labels = labels | {"alertname": rule["alert"]}
    for state, found in states.items():
        if found:
            yield Series("ALERTS", labels | {"alertstate": state}, found.get)
    yield Series("ALERTS_FOR_STATE", labels, active.get)
