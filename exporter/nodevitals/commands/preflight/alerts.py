"""Alerts of this node that fire in Prometheus. Its answer in, findings out."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from nodevitals.commands.doctor.asking import Answer, decoded
from nodevitals.commands.doctor.findings import OK, PROBLEM, UNKNOWN, Finding, printable

PATH = "/api/v1/alerts"


class _Alert(msgspec.Struct):
    labels: dict[str, str]
    state: str
    annotations: dict[str, str] = {}


class _Alerts(msgspec.Struct):
    alerts: list[_Alert]


class _AlertsAnswer(msgspec.Struct):
    data: _Alerts


def alert_findings(answer: Answer, names: frozenset[str], cluster: str) -> Iterator[Finding]:
    """Critical and warning alerts whose instance is this node; those of a drill are not real."""
    found, answer = decoded(answer, _AlertsAnswer, "Prometheus")
    if found is None:
        yield Finding("alerts", UNKNOWN, f"Prometheus: {answer.problem}", "check --prometheus")
        return
    mine = [
        one
        for one in found.data.alerts
        if one.state == "firing"
        and is_instance(one.labels.get("instance", ""), names)
        and one.labels.get("severity") in ("critical", "warning")
        and not one.labels.get("drill")
        and (not cluster or one.labels.get("cluster", cluster) == cluster)
    ]
    for one in mine:
        name = one.labels.get("alertname", "")
        text = f"{name}: {one.annotations.get('summary', '')}"
        yield Finding(
            "alerts", PROBLEM, printable(text), printable(one.annotations.get("action", ""))
        )
    if not mine:
        yield Finding("alerts", OK, f"none of this node among {len(found.data.alerts)}")


def is_instance(instance: str, names: frozenset[str]) -> bool:
    """Whether the label `instance` means a node of these names, with a port or without."""
    host = instance.rpartition(":")[0] if instance.rpartition(":")[2].isdigit() else instance
    return host.strip("[]") in names or instance in names
