"""How alerts become incidents: one per node, or per fleet incident. Pure.

In: an alert as Alertmanager sent it, the newest incident of its key, settings, the time. Out: the
incident as it is then. The same alert comes by several receivers and again: the result is the same.
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
"""For which Alertmanager may send a message again that was true when it was sent first."""
MAX_ALERTS_KEPT = 500
"""Of one incident; of more, resolved ones are forgotten first."""


def key_of(alert: Alert, node: str) -> str:
    """What an incident is about: a node, or what a fleet incident has in common."""
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
    """The incident with this alert; None where nothing changes. `newest` is the newest of the
    alert's key, `new` the one that it would open. `again`: its group said before that it is
    resolved.
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
    """Whether it was sent before the end that is known, by another receiver, and arrived after it.
    An alert may begin again with the start that it had: Prometheus was away, or a silence ended.
    """
    if before.status != "resolved" or before.starts_at != alert.starts_at:
        return False
    end = moment(before.ends_at, UTC)
    return end is None or now - end.timestamp() < LATE_SECONDS


def _with(incident: Incident, alert: Alert) -> Incident:
    """The incident with an alert, and the severity that it has then."""
    alerts = {**incident.alerts, alert.fingerprint: alert}
    if len(alerts) > MAX_ALERTS_KEPT:
        ended = [name for name, one in alerts.items() if one.status == "resolved"]
        for name in [*ended, *alerts][: len(alerts) - MAX_ALERTS_KEPT]:
            alerts.pop(name, None)
    severity = worse(incident.severity, alert.labels.get("severity", ""))
    title = incident.title
    if alert.status == "firing" and (not incident.alerts or severity != incident.severity):
        title = title_of(alert)
    return replace(incident, alerts=alerts, severity=severity, title=title)


def _resolved_if_all_are(incident: Incident, now: float) -> Incident:
    if any(one.status == "firing" for one in incident.alerts.values()):
        return incident
    return replace(incident, resolved=max(now, incident.opened))


def worse(one: Severity, other: str) -> Severity:
    """The more severe of two."""
    known = [name for name in SEVERITIES if name in (one, other)]
    return known[-1]


def title_of(alert: Alert) -> str:
    """One line of an alert."""
    text = alert.annotations.get("summary") or alert.labels.get("alertname", "alert")
    return " ".join(text.split())[:300]


def vanished(
    incident: Incident, active: Collection[str], since: Mapping[str, float], now: float, wait: float
) -> Incident:
    """The incident without alerts that Alertmanager has not had for `wait` seconds: it sends no end
    of one that was silenced. `since` has the time from which each was missed.
    """
    stamp = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(now))
    changed = incident
    for name, alert in incident.alerts.items():
        is_missed = name not in active and now - since.get(name, now) >= wait
        if alert.status == "firing" and is_missed:
            ended = replace(alert, status="resolved", ends_at=stamp)
            changed = replace(changed, alerts={**changed.alerts, name: ended})
    return changed if changed is incident else _resolved_if_all_are(changed, now)
