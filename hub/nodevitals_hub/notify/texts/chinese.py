"""Chinese notifications: faults, objects, impacts and actions by the alerts' labels (words_zh.py).

The annotations `summary_zh`, `description_zh` and `action_zh` of a site's own rules take
precedence; the English summary and steps come last, for their values and commands.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import tzinfo

from nodevitals_hub.notify.texts import words_zh as words
from nodevitals_hub.notify.texts.grouping import MAX_NAMED, Group, cluster_of, is_drill, named
from nodevitals_hub.notify.texts.phrases import MAX_TITLE_CHARACTERS, Phrases, alerts_of, counts
from nodevitals_hub.notify.texts.times import times_of
from nodevitals_hub.plain_text import clean, cut, link
from nodevitals_hub.records import Alert

_OBJECTS = (
    "device",
    "interface",
    "peer",
    "pci_bus_id",
    "source",
    "controller",
    "target",
    "probe",
    "event",
    "channel",
)


class Chinese(Phrases):
    """Chinese, with the English summary and steps unless those follow anyway."""

    def __init__(self, with_english: bool) -> None:
        self._with_english = with_english

    def title(self, groups: Sequence[Group], cluster: str) -> str:
        """As in Phrases."""
        alerts = alerts_of(groups)
        firing, resolved = counts(alerts)
        marks = [f"告警 {firing}"] * bool(firing) + [f"已恢复 {resolved}"] * bool(resolved)
        drill = "[演练] " if is_drill(alerts) else ""
        place, others = cluster_of(alerts, cluster)
        place = (clean(place, 30) or "未命名集群") + (" 等多个集群" if others else "")
        group = groups[0]
        if len(group.nodes) == 1:
            place += f" {clean(group.nodes[0], 60)}"
        what = cut(_what(group), MAX_TITLE_CHARACTERS)
        return f"{drill}[{'，'.join(marks)}] {place}：{what}"

    def headline(self, group: Group) -> str:
        """As in Phrases."""
        severity = group.first.labels.get("severity", "")
        mark = words.SEVERITIES.get(severity, words.OTHER_SEVERITY) if group.firing else "已恢复"
        if group.first.is_drill:
            mark = f"演练·{mark}"
        nodes = group.nodes
        if len(nodes) > 1:
            rest = " 等" if len(nodes) > MAX_NAMED else ""
            return f"【{mark}】{_what(group)}：{named(nodes, '、')}{rest}"
        node = f"{clean(nodes[0], 80)}：" if nodes else ""
        listed = ""
        if len(group.alerts) > 1:
            objects = tuple(dict.fromkeys(_object(alert) for alert in group.alerts))
            rest = " 等" if len(objects) > MAX_NAMED else ""
            listed = f"：{named(objects, '、')}{rest}" if any(objects) else ""
        return f"【{mark}】{node}{_what(group)}{listed}"

    def details(self, group: Group, zone: tzinfo) -> list[str]:
        """As in Phrases."""
        first, lines = group.first, _when(group, zone)
        notes = first.annotations
        if group.firing:
            lines += [
                f"  影响：{clean(notes.get('description_zh', ''), 700) or _impact(first)}",
                f"  处置：{clean(notes.get('action_zh', ''), 700) or _action(first)}",
                f"  手册：{_runbook(first)}",
                f"  仪表盘：{link(notes.get('dashboard_url', ''))}",
                f"  图表：{link(first.generator_url)}",
            ]
        if self._with_english:
            known = _is_known(first)
            action = notes.get("action", "") if known or notes.get("action_zh") else ""
            summary = notes.get("summary", "") if known or notes.get("summary_zh") else ""
            lines += [
                f"  英文步骤：{clean(action if group.firing else '', 700)}",
                f"  英文摘要：{clean(summary)}",
            ]
        return [line for line in lines if not line.endswith("：")]

    def more(self, alerts: int) -> str:
        """As in Phrases."""
        return f"另有 {alerts} 条告警"

    def incident(self, url: str, firing: bool) -> str:
        """As in Phrases."""
        return f"事件{'（可在此确认）' if firing else ''}：{url}"

    def check(self, url: str) -> str:
        """As in Phrases."""
        return f"检测此节点：{url}"

    def digest(self, cluster: str, notifications: int, drill: bool) -> str:
        """As in Phrases."""
        mark = "[演练] " if drill else ""
        return f"{mark}[{notifications} 条通知] {clean(cluster, 30) or '未命名集群'}"


def _what(group: Group) -> str:
    """`GPU 2 掉卡`, `掉卡，100 个节点`."""
    whats = {_of_one(alert) for alert in group.alerts}
    text = next(iter(whats)) if len(whats) == 1 else _fault(group.first)
    nodes, alerts = len(group.nodes), len(group.alerts)
    if nodes > 1:
        text += f"，{nodes} 个节点"
    return text if alerts == max(nodes, 1) else f"{text}，{alerts} 条告警"


def _of_one(alert: Alert) -> str:
    """The object and the fault of one alert."""
    labels = alert.labels
    if alert.annotations.get("summary_zh"):
        return clean(alert.annotations["summary_zh"])
    if labels.get("alertname") == "FleetIncident":
        domain = labels.get("domain", "")
        name = words.DOMAINS.get(domain) or clean(domain, 8)
        if domain != "cluster":
            name = f"{name} {clean(labels.get('domain_name', ''), 40)}".rstrip()
        return f"{name}：多节点{_fault(alert)}"
    if not _is_known(alert):
        return _fault(alert)
    return f"{_object(alert)} {_fault(alert)}".strip()


def _is_known(alert: Alert) -> bool:
    """Whether its fault is a shipped one; the texts of a site's own are shown as they are."""
    labels = alert.labels
    shipped = (labels.get("kind") or labels.get("fault", "")) in words.FAULTS
    return shipped or labels.get("alertname") == "FleetIncident"


def _fault(alert: Alert) -> str:
    """The name of the fault; for a site's own fault, its summary."""
    labels = alert.labels
    fault, xid = labels.get("kind") or labels.get("fault", ""), clean(labels.get("xid", ""), 10)
    if fault == "nvidia_xid" and xid:
        return "掉卡（Xid 79）" if xid == "79" else f"出现 Xid {xid} 错误"
    if fault in words.FAULTS:
        return words.FAULTS[fault]
    own = alert.annotations.get("summary") or fault or labels.get("alertname", "")
    return clean(own, 80) or "告警"


def _object(alert: Alert) -> str:
    """The object that has the fault; '' where it is the node."""
    labels = alert.labels
    device = labels.get("device", "")
    if device and (
        labels.get("vendor") or labels.get("component") == "accelerator" or labels.get("xid")
    ):
        kind = "NPU" if labels.get("vendor") == "ascend" else "GPU"
        return clean(f"{kind} {device}", 40)
    if device and labels.get("port"):
        return clean(f"{device}/{labels['port']}", 40)
    named_by = ("mountpoint", "member", *_OBJECTS)
    return clean(next((labels[name] for name in named_by if labels.get(name)), ""), 40)


def _impact(alert: Alert) -> str:
    labels = alert.labels
    if not _is_known(alert):
        return clean(alert.annotations.get("description", ""), 700)
    fault = labels.get("kind") or labels.get("fault", "")
    return words.impact(fault, labels.get("severity", ""), labels.get("component", ""))


def _action(alert: Alert) -> str:
    labels = alert.labels
    if not _is_known(alert):
        return clean(alert.annotations.get("action", ""), 700)
    if labels.get("alertname") == "FleetIncident":
        step = words.FIRST_STEPS.get(labels.get("domain", ""), words.OTHER_FIRST_STEP)
        return step + words.PLANNED
    action = labels.get("action") or "investigate"
    return words.ACTIONS.get(action) or clean(action, 40)


def _runbook(alert: Alert) -> str:
    """The runbook's link; for a critical alert's shipped runbook, that of its Chinese page."""
    url = link(alert.annotations.get("runbook_url", ""))
    place, folder, page = url.rpartition("/rules/runbooks/")
    if not folder or alert.labels.get("severity") != "critical" or "/" in page:
        return url
    return f"{place}{folder}zh/{page}"


def _when(group: Group, zone: tzinfo) -> list[str]:
    if not (times := times_of(group, zone)):
        return []
    began, fires = times.shown
    end = f"，恢复时间：{times.ended:%H:%M:%S}，持续时间：{times.lasted}" if times.ended else ""
    return [f"  故障开始：不晚于 {began}", f"  触发时间：{fires}{end}"]


CHINESE, CHINESE_BESIDE_ENGLISH = Chinese(True), Chinese(False)
