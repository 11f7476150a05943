"""The findings from the agent's samples: whether its results are fresh, and what they show.

Prometheus' answer adds the firing alerts of this node.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import msgspec

from nodevitals.commands.doctor.findings import (
    OK,
    PROBLEM,
    UNKNOWN,
    Finding,
    Samples,
    ago,
    printable,
)
from nodevitals.commands.doctor.http import Answer, decoded

MAX_AGE_INTERVALS = 3


def freshness_findings(samples: Samples, now: float) -> Iterator[Finding]:
    """Targets that failed or hang, and old results: the state of their hardware is unknown.
    Unreadable hardware is neither healthy nor lost; the same is true for a missing or invalid time.
    """
    success = samples.by_target("nodevitals_probe_success")
    last = samples.by_target("nodevitals_probe_last_success_timestamp_seconds")
    interval = samples.by_target("nodevitals_probe_interval_seconds")
    stuck = samples.by_target("nodevitals_probe_stuck_seconds")
    unanswered = samples.by_target("nodevitals_probe_unanswered_seconds")
    bad = 0
    for key in sorted(success):
        name = printable(" ".join(dict.fromkeys(key)), 80)
        age = now - last[key] if key in last else math.nan
        old = not age <= MAX_AGE_INTERVALS * interval.get(key, math.nan)
        problem = ""
        if stuck.get(key):
            problem = f"its process has hung for {ago(stuck[key])}: a driver or a mount"
        elif unanswered.get(key):
            problem = f"no run has ended in time for {ago(unanswered[key])}: a driver or a mount"
        elif old:
            known = math.isfinite(age)
            problem = f"its last good result is {ago(age)} old" if known else "it has no result yet"
        elif success[key] != 1:
            problem = "its last run failed"
        if problem:
            bad += 1
            remedy = f"nodevitals probe {key[0]}; nodevitals doctor"
            yield Finding("probe", UNKNOWN, f"{name}: {problem}", remedy)
    if not success:
        yield Finding("probe", UNKNOWN, "no results", "is it an agent? nodevitals doctor")
    elif not bad:
        yield Finding("probe", OK, f"{len(success)} targets have fresh results")


def profile_findings(samples: Samples) -> Iterator[Finding]:
    """Checks of the profile that are unknown."""
    unknown = [
        labels["check"]
        for labels, _ in samples.values.get("nodevitals_profile_check_info", ())
        if labels.get("wanted") and not labels.get("found")
    ]
    if unknown:
        text = f"unknown: {', '.join(sorted(unknown)[:5])}"
        remedy = "nodevitals profile show: is the driver loaded, is the agent root?"
        yield Finding("profile", UNKNOWN, printable(text), remedy)


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
    """Critical and warning alerts whose instance is this node, except those of a drill."""
    active, answer = decoded(answer, _AlertsAnswer, "Prometheus")
    if active is None:
        yield Finding("alerts", UNKNOWN, f"Prometheus: {answer.problem}", "check --prometheus")
        return
    mine = [
        alert
        for alert in active.data.alerts
        if alert.state == "firing"
        and is_instance(alert.labels.get("instance", ""), names)
        and alert.labels.get("severity") in ("critical", "warning")
        and not alert.labels.get("drill")
        and (not cluster or alert.labels.get("cluster", cluster) == cluster)
    ]
    for alert in mine:
        name = alert.labels.get("alertname", "")
        text = f"{name}: {alert.annotations.get('summary', '')}"
        yield Finding(
            "alerts", PROBLEM, printable(text), printable(alert.annotations.get("action", ""))
        )
    if not mine:
        yield Finding("alerts", OK, f"none of this node among {len(active.data.alerts)}")


def is_instance(instance: str, names: frozenset[str]) -> bool:
    """Whether the label `instance` is one of these names, with or without a port."""
    host = instance.rpartition(":")[0] if instance.rpartition(":")[2].isdigit() else instance
    return host.strip("[]") in names or instance in names
