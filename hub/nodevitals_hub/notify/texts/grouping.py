"""Groups alerts for people: the most severe first, and one group for one fault on many nodes.

In: the alerts of a message. Out: groups. Pure.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from nodevitals_hub.plain_text import clean
from nodevitals_hub.records import Alert

SEVERITIES = ("critical", "warning", "info")
MAX_NAMED = 8
# Among alerts of equal severity, the root cause comes first, as in Alertmanager's templates.
_FIRST_NAMES = ("FleetIncident",)
_FIRST_FAULTS = (
    "node_down",
    "accelerator_lost",
    "nvidia_xid",
    "accelerators_unseen",
    "nic_failed",
    "memory_uncorrectable",
    "mount_hung",
    "mount_missing",
    "rdma_port_down",
    "network_interface_down",
)


class Group(NamedTuple):
    """Alerts of one kind and state, on different nodes or of different devices."""

    alerts: tuple[Alert, ...]

    @property
    def first(self) -> Alert:
        """The first alert, which represents the group."""
        return self.alerts[0]

    @property
    def firing(self) -> bool:
        """Whether they fire."""
        return self.first.status == "firing"

    @property
    def nodes(self) -> tuple[str, ...]:
        """Their nodes, each once."""
        names = (alert.labels.get("instance", "") for alert in self.alerts)
        return tuple(dict.fromkeys(name for name in names if name))


def grouped(alerts: Sequence[Alert]) -> list[Group]:
    """The groups, in the order in which people should read them."""
    groups: dict[tuple[str, ...], list[Alert]] = {}
    for alert in sorted(alerts, key=_rank):
        groups.setdefault(_kind(alert), []).append(alert)
    return [Group(tuple(some)) for some in groups.values()]


def named(nodes: Sequence[str], separator: str) -> str:
    """The first names."""
    return separator.join(clean(name, 80) for name in nodes[:MAX_NAMED])


def without_node(text: str, node: str) -> str:
    """A summary without the name of its node: `GPU 2 lost on gpu-1` is `GPU 2 lost`."""
    if not node:
        return text
    for beginning in (f"{node}: ", f"{node} port ", f"{node} "):
        if text.startswith(beginning):
            return text[len(beginning) :]
    for place in (f" on {node}", f" of {node}"):
        before, _, after = text.partition(place)
        if len(before) < len(text) and after[:1] in ("", " ", ",", ";", ":", "."):
            return before + after
    return text


def cluster_of(alerts: Sequence[Alert], default: str) -> tuple[str, bool]:
    """The first cluster by name, and whether there are others."""
    names = sorted({alert.labels["cluster"] for alert in alerts if alert.labels.get("cluster")})
    return (names[0] if names else default), len(names) > 1


def is_drill(alerts: Sequence[Alert]) -> bool:
    """Whether all alerts are drills: a text with one real alert must not look like a drill."""
    return bool(alerts) and all(alert.is_drill for alert in alerts)


def _rank(alert: Alert) -> tuple[bool, bool, int, int]:
    labels = alert.labels
    severity, fault = labels.get("severity", ""), labels.get("fault", "")
    level = SEVERITIES.index(severity) if severity in SEVERITIES else len(SEVERITIES)
    cause = 1 + len(_FIRST_FAULTS)
    if labels.get("alertname") in _FIRST_NAMES:
        cause = 0
    elif fault in _FIRST_FAULTS and (fault != "nvidia_xid" or labels.get("xid") == "79"):
        cause = 1 + _FIRST_FAULTS.index(fault)
    return alert.status != "firing", alert.is_drill, level, cause


def _kind(alert: Alert) -> tuple[str, ...]:
    """The key of an alert's group. Fleet incidents and faults without a node are grouped by their
    summary as well.
    """
    labels = alert.labels
    common = ("alertname", "fault", "severity", "xid", "cluster", "vendor")
    kind = (alert.status, str(alert.is_drill), *(labels.get(name, "") for name in common))
    if labels.get("instance"):
        return kind
    return (*kind, alert.annotations.get("summary", ""))
