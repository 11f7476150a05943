"""Chooses the checks for a message of Alertmanager.

In: alerts, the nodes on the lists, the known alerts and checks. Out: groups of suspects with
possible partners, then a request per group, and the reason for each alert without one. Pure.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from hashlib import sha256
from typing import Annotated, Literal, NamedTuple

import msgspec

from nodevitals.checks.model import CheckRequest, Kind
from nodevitals.probes.common.addresses import parse_address
from nodevitals.quantities import shown
from nodevitals_hub.checks.check_requests import Member
from nodevitals_hub.settings.hub import AlertCheckSettings

MAX_SUSPECTS = 16
MAX_GROUPS = 64
"""Limit per message: each group costs a loop over all nodes."""
MAX_ALERTS = 10_000
SPARE_PARTNERS = 48
"""Nodes queried for their state beyond the needed partners: some will be in use."""

Fingerprint = Annotated[str, msgspec.Meta(pattern=r"^[0-9a-zA-Z]{1,64}\Z")]


class Alert(msgspec.Struct, frozen=True, kw_only=True):
    """One alert of a message; other fields are ignored, as later versions may have more."""

    status: Literal["firing", "resolved"]
    fingerprint: Fingerprint
    labels: dict[str, str]

    @property
    def name(self) -> str:
        """The alertname."""
        return self.labels.get("alertname", "")[:200]

    @property
    def is_drill(self) -> bool:
        """Whether it is a rehearsal (incidents/drill.py)."""
        return self.labels.get("drill") == "true"


class Message(msgspec.Struct, frozen=True, kw_only=True):
    """The body of Alertmanager's webhook, version 4."""

    version: Literal["4"]
    alerts: Annotated[tuple[Alert, ...], msgspec.Meta(max_length=MAX_ALERTS)]
    truncated: int = msgspec.field(default=0, name="truncatedAlerts")
    """Alerts that Alertmanager left out (`max_alerts`)."""


class Known(NamedTuple):
    """The nodes on the lists, their alerts and their recent checks."""

    members: Mapping[str, Member]
    alerting: AbstractSet[str]
    """Nodes that have an alert now."""
    tested: Mapping[tuple[str, str], str]
    """Recent checks, by the name of the alert and the node."""


class Group(NamedTuple):
    """Nodes with one alert and one value of the label `group_by`, and others to test them with."""

    rule: AlertCheckSettings
    suspects: tuple[str, ...]
    partners: tuple[str, ...]


class Grouping(NamedTuple):
    """The groups to check; for alerts without a check to start, by fingerprint, why not."""

    groups: tuple[Group, ...]
    reasons: dict[str, str]
    checks: dict[str, str]
    """Checks that were started before."""


def decode(body: bytes) -> Message:
    """The message in a body. Raises ValueError with one line."""
    try:
        return msgspec.json.decode(body, type=Message)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        text = "nested too deep" if isinstance(error, RecursionError) else str(error)
        raise ValueError(f"not a message of Alertmanager's webhook, version 4: {text}") from None


def host_of(instance: str) -> str:
    """An instance without its port, an IPv6 address without its brackets: `[fd00::2]:9855` is
    `fd00::2`. A text that is not an address stays unchanged.
    """
    try:
        host, _ = parse_address(instance, 1)
    except ValueError:
        return instance
    return host


def node_of(labels: Mapping[str, str], members: Mapping[str, Member]) -> str | None:
    """The node of an alert: its label `instance`, with or without a port, else `node`.

    The scrape sets `instance`; a pod may expose any `node`.
    """
    instance = labels.get("instance", "")
    names = (instance, host_of(instance), labels.get("node", ""))
    return next((name for name in names if name in members), None)


def grouped(
    alerts: Sequence[Alert], rules: Mapping[str, AlertCheckSettings], known: Known
) -> Grouping:
    """The groups of the firing alerts, and why the other alerts have none."""
    reasons: dict[str, str] = {}
    checks: dict[str, str] = {}
    suspects: dict[tuple[str, str], list[str]] = {}
    for alert in alerts:
        rule, node = rules.get(alert.name), node_of(alert.labels, known.members)
        if alert.status == "resolved":
            continue
        if rule is None:
            reasons[alert.fingerprint] = "no check is set for this alert (alerts)"
        elif node is None:
            named = alert.labels.get("node") or alert.labels.get("instance", "")
            reasons[alert.fingerprint] = f"node {shown(named)} is not on the lists of nodes"
        elif before := known.tested.get((alert.name, node)):
            checks[alert.fingerprint] = before
        else:
            value = known.members[node].labels.get(rule.group_by, "")
            if (alert.name, value) not in suspects and len(suspects) >= MAX_GROUPS:
                reasons[alert.fingerprint] = f"more than {MAX_GROUPS} groups of nodes at once"
                continue
            nodes = suspects.setdefault((alert.name, value), [])
            if node in nodes:
                continue
            if len(nodes) < MAX_SUSPECTS:
                nodes.append(node)
                continue
            where = f" of {rule.group_by}={value}" if rule.group_by else ""
            reasons[alert.fingerprint] = f"more than {MAX_SUSPECTS} nodes{where} at once"
    groups = tuple(
        Group(rules[name], tuple(sorted(nodes)), partners(rules[name], value, nodes, known))
        for (name, value), nodes in suspects.items()
    )
    return Grouping(groups, reasons, checks)


def partners(
    rule: AlertCheckSettings, value: str, suspects: Sequence[str], known: Known
) -> tuple[str, ...]:
    """Nodes of the group without an alert. Those after the first suspect by name come first, so
    that the hub does not always choose the same ones.
    """
    if not rule.with_healthy:
        return ()
    first = min(suspects)
    others = sorted(
        (name <= first, name)
        for name, member in known.members.items()
        if member.labels.get(rule.group_by, "") == value
        and name not in known.alerting
        and name not in suspects
    )
    return tuple(name for _, name in others[: rule.with_healthy + SPARE_PARTNERS])


def request_of(group: Group, in_use: AbstractSet[str], kind: Kind) -> CheckRequest:
    """The check for a group. Raises ValueError with the reason why there is none."""
    rule = group.rule
    suspects = [name for name in group.suspects if name not in in_use]
    if not suspects:
        raise ValueError("in use by jobs")
    healthy: list[str] = []
    if kind != "node":
        kind = "matrix" if kind == "pair" else kind
        healthy = [name for name in group.partners if name not in in_use][: rule.with_healthy]
        if (rule.with_healthy and not healthy) or len(suspects) + len(healthy) < 2:
            where = f" of the same {rule.group_by}" if rule.group_by else ""
            raise ValueError(f"no node{where} without an alert is idle: there is no partner")
    named = ", ".join(suspects)
    return CheckRequest(
        kind=kind,
        nodes=(*suspects, *healthy),
        preset=rule.preset,
        note=f"alert {rule.alertname} of {named}"[:500],
    )


def key_of(group: Group, now: float) -> str:
    """A key that is equal for the same nodes within the rule's time: a message that is sent again
    after the hub was killed starts no second check.
    """
    period = int(now // max(group.rule.at_most_every, 1.0))
    parts = msgspec.json.encode([group.rule.alertname, group.suspects, period])
    return f"alert {sha256(parts).hexdigest()}"
