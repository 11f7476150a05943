"""English notifications: the words of the alerts' own annotations."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import tzinfo

from nodevitals_hub.notify.texts.grouping import (
    MAX_NAMED,
    Group,
    cluster_of,
    is_drill,
    named,
    without_node,
)
from nodevitals_hub.notify.texts.phrases import MAX_TITLE_CHARACTERS, Phrases, alerts_of, counts
from nodevitals_hub.notify.texts.times import times_of
from nodevitals_hub.plain_text import clean, cut, link
from nodevitals_hub.records import Alert


class English(Phrases):
    """English."""

    def title(self, groups: Sequence[Group], cluster: str) -> str:
        """As in Phrases."""
        alerts = alerts_of(groups)
        firing, resolved = counts(alerts)
        marks = [f"FIRING {firing}"] * bool(firing) + [f"RESOLVED {resolved}"] * bool(resolved)
        drill = "[DRILL] " if is_drill(alerts) else ""
        place, others = cluster_of(alerts, cluster)
        place = (clean(place, 30) or "unnamed cluster") + (" and other clusters" if others else "")
        what = cut(_what(groups[0]), MAX_TITLE_CHARACTERS)
        return f"{drill}[{', '.join(marks)}] {place}: {what}"

    def headline(self, group: Group) -> str:
        """As in Phrases."""
        mark = clean(group.first.labels.get("severity", ""), 20).upper() or "ALERT"
        if not group.firing:
            mark = "RESOLVED"
        if group.first.is_drill:
            mark = f"DRILL, {mark}"
        names, others = "", len(group.nodes) - MAX_NAMED
        if len(group.nodes) > 1:
            names = f": {named(group.nodes, ', ')}" + (f" and {others} more" if others > 0 else "")
        elif len(group.alerts) > 1:
            whats = tuple(dict.fromkeys(_without_node(alert) for alert in group.alerts))
            names = f": {named(whats, ', ')}" + (", …" if len(whats) > MAX_NAMED else "")
        return f"{mark}: {_what(group)}{names}"

    def details(self, group: Group, zone: tzinfo) -> list[str]:
        """As in Phrases."""
        first, lines = group.first, _when(group, zone)
        notes = first.annotations
        if group.firing:
            place = f" ({clean(group.nodes[0], 80)})" if len(group.nodes) > 1 else ""
            lines += [
                f"  Impact: {clean(notes.get('description', ''), 700)}",
                f"  Action{place}: {clean(notes.get('action', ''), 700)}",
                f"  Runbook: {link(notes.get('runbook_url', ''))}",
                f"  Dashboard: {link(notes.get('dashboard_url', ''))}",
                f"  Graph: {link(first.generator_url)}",
            ]
        return [line for line in lines if not line.endswith(": ")]

    def more(self, alerts: int) -> str:
        """As in Phrases."""
        return f"and {alerts} more alert{'s' if alerts > 1 else ''}"

    def incident(self, url: str, firing: bool) -> str:
        """As in Phrases."""
        return f"Incident{', to acknowledge' if firing else ''}: {url}"

    def check(self, url: str) -> str:
        """As in Phrases."""
        return f"Test this node: {url}"

    def digest(self, cluster: str, notifications: int, drill: bool) -> str:
        """As in Phrases."""
        mark = "[DRILL] " if drill else ""
        return f"{mark}[{notifications} NOTIFICATIONS] {clean(cluster, 30) or 'unnamed cluster'}"


def _summary(alert: Alert) -> str:
    labels = alert.labels
    own = labels.get("fault") or labels.get("alertname") or "alert"
    text = alert.annotations.get("summary") or own
    return clean(text)


def _without_node(alert: Alert) -> str:
    return without_node(_summary(alert), clean(alert.labels.get("instance", "")))


def _what(group: Group) -> str:
    """`GPU 2 lost on gpu-1`, `GPU 2 lost on 9 nodes`, `AcceleratorLost on 9 nodes, 20 alerts`."""
    if len(group.alerts) == 1:
        return _summary(group.first)
    whats = {_without_node(alert) for alert in group.alerts}
    name = clean(group.first.labels.get("alertname", ""), 80) or "alert"
    what = next(iter(whats)) if len(whats) == 1 else name
    nodes = group.nodes
    if nodes:
        what += f" on {len(nodes)} nodes" if len(nodes) > 1 else f" on {clean(nodes[0], 80)}"
    alerts = len(group.alerts)
    return what if alerts == len(nodes) else f"{what}, {alerts} alerts"


def _when(group: Group, zone: tzinfo) -> list[str]:
    if not (times := times_of(group, zone)):
        return []
    began, fires = times.shown
    end = f", until {times.ended:%H:%M:%S}, lasted {times.lasted}" if times.ended else ""
    return [f"  Fault began by: {began}", f"  Firing since: {fires}{end}"]


ENGLISH = English()
