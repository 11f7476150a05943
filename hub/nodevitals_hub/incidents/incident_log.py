"""How alerts become incidents: one per node, or per fleet incident. Pure.

In: an alert as Alertmanager sent it, the newest incident of its key, settings, the time. Out: the
changed incident. Several receivers may send an alert, also repeatedly: the result is the same.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping
from datetime import UTC

from msgspec.structs import replace

from nodevitals_hub.plain_text import moment
from nodevitals_hub.records import Alert, Incident
from nodevitals_hub.settings.response import IncidentsSettings, Severity

SEVERITIES: tuple[Severity, ...] = ("info", "warning", "critical")
FLEET_LABELS = ("alertname", "domain", "domain_name", "kind", "source")
LATE_SECONDS = 600.0
"""How long Alertmanager may repeat a message that is no longer true."""
MAX_ALERTS_KEPT = 500
"""Limit per incident; above it, resolved alerts are removed first."""


def key_of(alert: Alert, node: str) -> str:
    """The key of an incident: its node, or the labels that a fleet incident shares."""
    labels = alert.labels
    if labels.get("scope") == "fleet" or not (node or labels.get("instance")):
        parts = [labels.get(name, "") for name in FLEET_LABELS]
    else:
        parts = ["node", node or labels["instance"]]
    drill = ["drill"] if alert.is_drill else []
    return "\n".join([labels.get("cluster", ""), *parts, *drill])


def opens(alert: Alert, settings: IncidentsSettings) -> bool:
    """Whether alerts of this severity are incidents."""
    return alert.labels.get("severity") in settings.severities


def taken(
    alert: Alert,
    newest: Incident | None,
    new: Incident,
    settings: IncidentsSettings,
    now: float,
    again: bool = False,
) -> Incident | None:
    """The incident with this alert; None where nothing changes. `newest` is the newest incident of
    the alert's key, `new` the incident that it would open. `again`: an earlier message of its group
    reported it as resolved.
    """
    before = newest.alerts.get(alert.fingerprint) if newest else None
    if alert.status == "resolved":
        if newest is None or before is None or before.status == "resolved":
            return None
        return _resolved_if_all_are(_with(newest, alert), now)
    if before is not None and not again and _is_late(alert, before, now):
        return None
    if newest is not None and newest.resolved is None:
        return None if before == alert else _with(newest, alert)
    if newest is None or newest.resolved is None:
        return _with(new, alert)
    again = 0 <= now - newest.resolved < settings.reopen_within
    return _with(replace(newest, resolved=None) if again else new, alert)


def _is_late(alert: Alert, before: Alert, now: float) -> bool:
    """Whether another receiver sent it before the known end, and it arrived after that. An alert
    may also fire again with its earlier start: after an outage of Prometheus, or after a silence.
    """
    if before.status != "resolved" or before.starts_at != alert.starts_at:
        return False
    end = moment(before.ends_at, UTC)
    return end is None or now - end.timestamp() < LATE_SECONDS


def _with(incident: Incident, alert: Alert) -> Incident:
    """The incident with an alert, and with the resulting severity."""
    alerts = {**incident.alerts, alert.fingerprint: alert}
    if len(alerts) > MAX_ALERTS_KEPT:
        ended = [name for name, known in alerts.items() if known.status == "resolved"]
        for name in [*ended, *alerts][: len(alerts) - MAX_ALERTS_KEPT]:
            alerts.pop(name, None)
    severity = worse(incident.severity, alert.labels.get("severity", ""))
    title = incident.title
    if alert.status == "firing" and (not incident.alerts or severity != incident.severity):
        title = title_of(alert)
    return replace(incident, alerts=alerts, severity=severity, title=title)


def _resolved_if_all_are(incident: Incident, now: float) -> Incident:
    if any(alert.status == "firing" for alert in incident.alerts.values()):
        return incident
    return replace(incident, resolved=max(now, incident.opened))


def worse(first: Severity, other: str) -> Severity:
    """The more severe of two severities."""
    known = [name for name in SEVERITIES if name in (first, other)]
    return known[-1]


def title_of(alert: Alert) -> str:
    """One line of an alert."""
    text = alert.annotations.get("summary") or alert.labels.get("alertname", "alert")
    return " ".join(text.split())[:300]


def vanished(
    incident: Incident, active: Collection[str], since: Mapping[str, float], now: float, wait: float
) -> Incident:
    """The incident with the alerts resolved that Alertmanager has not had for `wait` seconds: it
    does not send the end of a silenced alert. `since` has the time from which each is missing.
    """
    stamp = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(now))
    changed = incident
    for name, alert in incident.alerts.items():
        is_missed = name not in active and now - since.get(name, now) >= wait
        if alert.status == "firing" and is_missed:
            ended = replace(alert, status="resolved", ends_at=stamp)
            changed = replace(changed, alerts={**changed.alerts, name: ended})
    return changed if changed is incident else _resolved_if_all_are(changed, now)
