"""The findings about Alertmanager, from its answers."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import datetime, timezone
from typing import Any

from nodevitals.commands.doctor.findings import (
    OFF,
    OK,
    PROBLEM,
    UNKNOWN,
    Finding,
    ago,
    listed,
    printable,
)
from nodevitals.commands.doctor.http import Endpoint
from nodevitals.commands.doctor.servers import ManagerStatus, ReceivedAlert, Sample, Silence
from nodevitals.commands.rules.routes import deliveries, holds, matcher_labels
from nodevitals.document import DocumentError, parse_yaml

MISSED_SENDS = 2
MAX_ROWS = 20
"""Silences that are shown."""
FIRST_SECONDS = 300.0
"""What Prometheus sends before it has found Alertmanager is lost until it sends it again."""
MAINTENANCE_QUERY = "nodevitals:node_maintenance:end or 0 * nodevitals:node_maintenance"
_RESENDS = 4.0
"""Prometheus sets an alert's end to this many times its interval between two messages."""
_FILL_IN = (
    "fill in the receiver in alertmanager.yml; amtool check-config FILE; systemctl reload"
    " prometheus-alertmanager"
)
# Labels of a node's alerts, to find their routes.
_EXAMPLES = {
    "critical": {"alertname": "AcceleratorLost", "component": "accelerator", "scope": "device"},
    "warning": {"alertname": "NodeCpuHigh", "component": "node", "scope": "node"},
}


def status_findings(server: Endpoint, status: ManagerStatus) -> Iterator[Finding]:
    """The version, and the state of Alertmanager's cluster."""
    version, cluster = printable(status.versionInfo.version, 40), status.cluster.status
    if cluster in ("ready", "disabled"):
        peers = f"{len(status.cluster.peers)} in its cluster" if cluster == "ready" else "alone"
        text = f"{server.shown} answers; version {version}, {peers}"
        yield Finding("alertmanager", OK, text)
    else:
        text = f"version {version}; its cluster is {printable(cluster, 40)}"
        yield Finding("alertmanager", UNKNOWN, text, "wait, then amtool cluster show")


def watchdog_findings(
    alerts: Sequence[ReceivedAlert], now: float, prometheus_age: float | None
) -> Iterator[Finding]:
    """Whether the Watchdog, the alert that always fires, arrives again and again; `prometheus_age`
    is the time since the start of Prometheus, if known.
    """
    if not alerts and prometheus_age is not None and prometheus_age < FIRST_SECONDS:
        text = f"no Watchdog yet: Prometheus started {ago(prometheus_age)} ago"
        remedy = "wait for its --rules.alert.resend-delay: 1 min by default, 3 min as shipped"
        yield Finding("watchdog", UNKNOWN, text, remedy)
        return
    if not alerts:
        text = "no Watchdog: alerts of Prometheus do not arrive here"
        remedy = "load rules/agent.yaml; check alerting.alertmanagers in prometheus.yml"
        yield Finding("watchdog", PROBLEM, text, remedy)
        return
    newest = max(alerts, key=lambda alert: alert.updatedAt)
    age = now - newest.updatedAt.timestamp()
    period = (newest.endsAt.timestamp() - newest.updatedAt.timestamp()) / _RESENDS
    if newest.status.state == "suppressed":
        text = "the Watchdog is silenced or inhibited"
        yield Finding("watchdog", PROBLEM, text, "amtool silence query; amtool silence expire ID")
    elif age > MISSED_SENDS * period:
        text = f"the last Watchdog came {ago(age)} ago; Prometheus sends one every {ago(period)}"
        remedy = "check that Prometheus runs: journalctl -u prometheus | grep -i alertmanager"
        yield Finding("watchdog", PROBLEM, text, remedy)
    else:
        yield Finding("watchdog", OK, f"arrived {ago(age)} ago")


def receiver_findings(config: str) -> Iterator[Finding]:
    """The receivers of a node's critical and warning alerts, and of the Watchdog."""
    try:
        routing, kinds = _routing(config)
    except (DocumentError, ValueError) as error:
        text = printable(f"its configuration cannot be read: {error}")
        yield Finding("receivers", UNKNOWN, text, "amtool config show")
        return
    for severity, labels in _EXAMPLES.items():
        names = _receivers(routing, {**labels, "severity": severity, "instance": "node"})
        filled = [name for name in names if kinds[name]]
        shown = listed([printable(name, 60) for name in filled or names])
        if filled:
            reached = sorted({kind for name in filled for kind in kinds[name]})
            text = f"{severity} alerts of a node go to {shown} ({listed(reached)})"
            yield Finding("receivers", OK, text)
        else:
            text = f"{severity} alerts of a node go to {shown}, which sends nothing"
            yield Finding("receivers", PROBLEM, text, _FILL_IN)
    watchdog = {"alertname": "Watchdog", "severity": "none", "scope": "fleet"}
    if not any(kinds[name] for name in _receivers(routing, watchdog)):
        text = "the Watchdog goes nowhere: a pipeline that is down is noticed by no one"
        remedy = "send it to a service outside: receiver dead-mans-switch in alertmanager.yml"
        yield Finding("dead man's switch", OFF, text, remedy)


def _routing(config: str) -> tuple[dict[str, Any], defaultdict[str, set[str]]]:
    """A configuration, and the kinds of integrations of each receiver. Raises DocumentError,
    ValueError.
    """
    routing: Any = parse_yaml(config.encode())
    matcher_labels(routing)
    kinds: defaultdict[str, set[str]] = defaultdict(set)
    try:
        for receiver in routing.get("receivers") or ():
            configured = {key for key, value in receiver.items() if value}
            kinds[receiver["name"]] = {
                key.removesuffix("_configs") for key in configured if key.endswith("_configs")
            }
    except (AttributeError, KeyError, TypeError):
        raise ValueError("not an Alertmanager configuration") from None
    return routing, kinds


def _receivers(routing: Mapping[str, Any], labels: Mapping[str, str]) -> list[str]:
    return sorted({delivery.receiver for delivery in deliveries(routing, labels)})


def silence_findings(
    silences: Iterable[Silence],
    ours: Sequence[Mapping[str, str]],
    received: Sequence[ReceivedAlert],
    instances: Collection[str],
) -> Iterator[Finding]:
    """The silences that now mute alerts of this node: alerts of the shipped rules, `ours`, those
    that Alertmanager has `received` of it, and others for its `instance`.
    """
    found = [
        (silence, names)
        for silence in silences
        if silence.status.state == "active"
        and (names := _muted(silence, ours, received, instances))
    ]
    for silence, names in found[:MAX_ROWS]:
        author = f"{silence.createdBy} ({silence.comment})"
        text = f"until {_local(silence.endsAt)} by {author}: {listed(names, 3)}"
        remedy = "if that is over: amtool silence query; amtool silence expire ID"
        yield Finding("silence", OFF, printable(text), remedy)
    if len(found) > MAX_ROWS:
        text = f"{len(found) - MAX_ROWS} more silences mute alerts of this node"
        yield Finding("silence", OFF, text, "amtool silence query")
    if not found:
        yield Finding("silence", OK, "no silence mutes alerts of this node")


def inhibition_findings(received: Sequence[ReceivedAlert]) -> Iterator[Finding]:
    """The alerts of this node that others mute, as that of its maintenance does."""
    muted = [alert for alert in received if alert.status.inhibitedBy]
    if muted:
        names = {alert.fingerprint: alert.name for alert in received}
        by = {names.get(one, "another") for alert in muted for one in alert.status.inhibitedBy}
        shown = listed(sorted({alert.name for alert in muted}), 3)
        text = (
            f"{len(muted)} alerts of this node are muted while {listed(sorted(by))} fires: {shown}"
        )
        remedy = "if they matter now: amtool alert query --inhibited"
        yield Finding("inhibition", OFF, printable(text), remedy)


def maintenance_findings(ends: Iterable[Sample], instances: Collection[str]) -> Iterator[Finding]:
    """Whether this node is in maintenance for Prometheus, and the end of it; 0 is none."""
    for sample in ends:
        if sample.metric.get("instance") in instances:
            until = "without an end"
            if sample.number > 0:
                with suppress(OverflowError, ValueError, OSError):
                    until = f"until {_local(datetime.fromtimestamp(sample.number, timezone.utc))}"
            text = f"in maintenance {until}: alerts of this node are muted"
            remedy = "if the work is over: nodevitals maintenance end; or uncordon it, or its label"
            yield Finding("maintenance", OFF, text, remedy)


def _local(moment: datetime) -> str:
    with suppress(OverflowError):  # 9999-12-31, for ever
        moment = moment.astimezone()
    return moment.isoformat(" ", "minutes")


def _muted(
    silence: Silence,
    ours: Sequence[Mapping[str, str]],
    received: Sequence[ReceivedAlert],
    instances: Collection[str],
) -> list[str]:
    """The names of alerts of this node that a silence mutes, those that fire first; or else its
    matchers, where it is for this node.
    """
    firing = sorted({alert.name for alert in received if silence.id in alert.status.silencedBy})
    others = {alert["alertname"] for alert in ours if _mutes(silence, alert, instances)}
    names = firing + sorted(others - set(firing))
    of_node = any(one.name == "instance" and one.isEqual for one in silence.matchers)
    if not names and of_node and _mutes(silence, {}, instances):
        names = [f'{one.name}{one.operator}"{one.value}"' for one in silence.matchers]
    return names


def _mutes(silence: Silence, alert: Mapping[str, str], instances: Collection[str]) -> bool:
    """Whether a silence may mute an alert of this node: labels that only a firing one has may be
    anything.
    """
    for matcher in silence.matchers:
        if matcher.name == "instance" and instances:
            values = list(instances)
        elif matcher.name in alert and "{{" not in alert[matcher.name]:
            values = [alert[matcher.name]]
        else:
            continue
        try:
            if not any(holds(matcher.operator, matcher.value, value) for value in values):
                return False
        except re.error:
            continue
    return True
