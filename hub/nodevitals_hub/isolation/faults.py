"""Reads the faults of a cluster from the answer to one Prometheus query; refuses a stale answer.

In: samples of QUERY, the nodes on the lists, the clocks of this answer and of the previous one.
Out: Seen, or StaleError with the reason why nothing may be decided by this answer. Pure.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import NamedTuple, get_args

from nodevitals.quantities import shown
from nodevitals_hub.alerting.prometheus_queries import Sample
from nodevitals_hub.checks.check_requests import Member
from nodevitals_hub.records import Fault
from nodevitals_hub.settings.response import Service
from nodevitals_hub.triggers.alert_plan import host_of, node_of

PART = "nodevitals_part"
MAX_CLOCK_SECONDS = 60.0
"""Largest accepted difference between Prometheus' clock and the hub's clock."""
MAX_JUMP_SECONDS = 30.0
MAX_FAULT_SECONDS = 60.0
"""Maximum age of a confirmed fault, which is recorded every five seconds."""
MAX_RULE_SECONDS = 150.0
"""Maximum age of the last rule evaluation: two and a half default intervals of Prometheus."""
MAX_GAP_SECONDS = 90.0
"""A longer time without an answer does not count as time in which a fault lasted."""
_SERVICES: tuple[str, ...] = get_args(Service)


def _part(name: str, expression: str) -> str:
    return f'label_replace({expression}, "{PART}", "{name}", "", "")'


MAX_NODE_FAULTS = 64
"""Maximum number of confirmed faults read per node; a node has some twenty devices."""

# The values of `fault` and `alive` are the times of the recorded samples, because the lookback of
# five minutes also returns samples from before a restart of Prometheus. Recorded series have no
# job, scraped series have one: a pod that exposes a series of the same name is ignored. An alert
# has the job of the agents' samples, or none.
CONFIRMED = 'nodevitals:fault_confirmed{job="", drill=""}'
_ALERT_JOB = 'job=~"|nodevitals"'
_DECIDING = (
    _part("fault", f"topk by (cluster, instance) ({MAX_NODE_FAULTS}, timestamp({CONFIRMED}))"),
    _part("alive", 'max by (cluster) (timestamp(nodevitals:threshold{job=""}))'),
    _part(
        "incident",
        "group by (cluster, kind, domain, domain_name)"
        ' (ALERTS{job="", alertname="FleetIncident", alertstate="firing", drill=""})',
    ),
)
_UP = 'min by (cluster, instance) (up{job="nodevitals"})'
_PROBES = 'min by (cluster, instance) (nodevitals_probe_success{job="nodevitals"})'
# A cordoned node without a confirmed fault counts as in maintenance, and then none of its faults
# is confirmed: only the alerts show whether it has one.
_RETURNING = (
    _part("fresh", f"({_PROBES} == 1) and on (cluster, instance) ({_UP} == 1)"),
    _part("lacking", f"({_PROBES} != 1) or on (cluster, instance) ({_UP} != 1)"),
    _part("work", 'nodevitals:node_maintenance_source{job="", source!="cordon"}'),
    _part(
        "alert",
        "group by (cluster, instance, fault, severity)"
        f' (ALERTS{{{_ALERT_JOB}, alertstate=~"pending|firing", scope=~"device|node", fault!="",'
        ' drill="", severity=~"critical|warning|info"})',
    ),
)
QUERY = " or ".join(_DECIDING)
"""Used while no node is out of service."""
FULL_QUERY = " or ".join((*_DECIDING, *_RETURNING))
"""Also the data that show whether a node may return."""


def reported_query(faults: Sequence[str]) -> str:
    """The faults that other nodes must confirm, with the time of their alert, which has fired for
    15 s; and the nodes with planned work, on which faults are expected.
    """
    names = f'{{{_ALERT_JOB}, alertstate="firing", drill="", fault=~"{"|".join(faults)}"}}'
    inside = 'ALERTS{job="", alertname="InsideFleetIncident", alertstate="firing"}'
    work = 'ALERTS{job="", alertname="NodeMaintenance", alertstate="firing"}'
    cordon = 'nodevitals:node_maintenance_source{job="", source="cordon"}'
    return " or ".join(
        (
            _part(
                "reported",
                f"(timestamp(ALERTS{names}) and ALERTS{names} offset 15s)"
                f" unless on (cluster, instance, fault) {inside}",
            ),
            _part("work", f"{work} unless on (cluster, instance) {cordon}"),
            _part("work", 'nodevitals:node_maintenance_source{job="", source!="cordon"}'),
        )
    )


class StaleError(Exception):
    """Nothing may be decided by this answer; the text is the reason, in one line."""


class Clocks(NamedTuple):
    """The clocks at one answer."""

    wall: float
    monotonic: float
    prometheus: float
    usable: bool = True


class Seen(NamedTuple):
    """The content of one answer. `faults`: those that may take a node out of service."""

    time: float
    elapsed: float
    """Seconds since the previous answer, by the monotonic clock; 0 after too long a gap."""
    faults: tuple[Fault, ...]
    lasting: frozenset[tuple[str, str, str]] = frozenset()
    """All confirmed faults, also those of a fleet incident, by identity."""
    alerting: frozenset[tuple[str, str]] = frozenset()
    """Node and fault of all alerts, pending ones too."""
    critical: frozenset[str] = frozenset()
    """Nodes with a critical alert, a pending one too."""
    fresh_nodes: frozenset[str] = frozenset()
    """Nodes whose data are fresh: scraped, all probes succeed, no maintenance."""
    incident_open: bool = False


def clocks_of(samples: Sequence[Sample], wall: float, monotonic: float) -> Clocks:
    """The clocks of an answer, which is not yet marked as usable."""
    time = samples[0].time if samples else 0.0
    return Clocks(wall, monotonic, time, usable=False)


def read(
    samples: Sequence[Sample],
    members: Mapping[str, Member],
    cluster: str,
    now: Clocks,
    before: Clocks | None,
    longest_gap: float = MAX_GAP_SECONDS,
    recoverable: Sequence[str] = (),
) -> Seen:
    """Decode an answer. `recoverable`: faults that count as reported only. Raises StaleError."""
    _check_clocks(samples, now, before)
    assert before is not None
    by_part = _of_cluster(samples, cluster)
    _check_rules(by_part, samples, cluster, now.prometheus)
    faults = [
        fault
        for sample in by_part.get("fault", ())
        if -MAX_JUMP_SECONDS <= now.prometheus - sample.value <= MAX_FAULT_SECONDS
        for fault in _fault(sample.labels, members)
        if fault[0].fault not in recoverable
    ]
    work = set(_nodes(by_part, "work", members))
    faults += _reported(by_part.get("reported", ()), members, work, now.prometheus)
    alerts = by_part.get("alert", ())
    gap = now.monotonic - before.monotonic
    return Seen(
        time=now.prometheus,
        elapsed=gap if before.usable and gap <= longest_gap else 0.0,
        faults=tuple(fault for fault, acts in _unique(faults) if acts),
        lasting=frozenset(fault.identity for fault, _ in faults),
        alerting=frozenset(
            (_node(alert, members), alert.labels.get("fault", "")) for alert in alerts
        ),
        critical=frozenset(
            _node(alert, members) for alert in alerts if alert.labels.get("severity") == "critical"
        ),
        fresh_nodes=frozenset(_nodes(by_part, "fresh", members))
        - {*_nodes(by_part, "lacking", members), *work},
        incident_open=bool(by_part.get("incident")),
    )


def _check_clocks(samples: Sequence[Sample], now: Clocks, before: Clocks | None) -> None:
    if not samples:
        raise StaleError("Prometheus returned nothing: are the rules loaded?")
    if len({sample.time for sample in samples}) > 1:
        raise StaleError("samples of different times: not the answer of an instant query")
    away = now.prometheus - now.wall
    if abs(away) > MAX_CLOCK_SECONDS:
        raise StaleError(f"Prometheus' clock is {away:+.0f} s away from that of the hub")
    if before is None:
        raise StaleError("the first answer: only the next one shows whether its clock moves")
    if now.prometheus <= before.prometheus:
        raise StaleError("Prometheus' clock stands still, or what is between repeats an answer")
    gap = now.monotonic - before.monotonic
    for name, moved in (
        ("the hub's clock", now.wall - before.wall),
        ("Prometheus' clock", now.prometheus - before.prometheus),
    ):
        if before.prometheus and abs(moved - gap) > MAX_JUMP_SECONDS:
            raise StaleError(f"{name} has jumped by {moved - gap:+.0f} s")


def _of_cluster(samples: Sequence[Sample], cluster: str) -> dict[str, list[Sample]]:
    """The samples by part: those of this cluster, and those without a cluster."""
    named = {sample.labels.get("cluster", "") for sample in samples} - {""}
    if not cluster and len(named) > 1:
        names = ", ".join(map(shown, sorted(named)[:3]))
        raise StaleError(f"Prometheus has several clusters ({names}): set `cluster`")
    by_part: dict[str, list[Sample]] = {}
    for sample in samples:
        if not cluster or sample.labels.get("cluster", "") in ("", cluster):
            by_part.setdefault(sample.labels.get(PART, ""), []).append(sample)
    return by_part


def _check_rules(
    by_part: Mapping[str, Sequence[Sample]], samples: Sequence[Sample], cluster: str, now: float
) -> None:
    alive = by_part.get("alive", ())
    if not alive:
        others = {sample.labels.get("cluster", "") for sample in samples} - {"", cluster}
        if others:
            names = ", ".join(map(shown, sorted(others)[:3]))
            raise StaleError(f"nothing of the cluster {cluster}, only of {names}")
        raise StaleError("no series nodevitals:threshold: the rules are not loaded")
    age = now - max(sample.value for sample in alive)
    if age > MAX_RULE_SECONDS:
        raise StaleError(f"the rules were last evaluated {age:.0f} s ago")


def _fault(
    labels: Mapping[str, str], members: Mapping[str, Member]
) -> Iterator[tuple[Fault, bool]]:
    """A confirmed fault, and whether it may take a node out of service."""
    service = labels.get("service", "")
    name = labels.get("fault", "")
    node = _name(labels, members)
    if not (name and node) or labels.get("drill") == "true":
        return
    acts = service in _SERVICES and labels.get("incident", "false") == "false"
    fault = Fault(
        node=node,
        fault=name,
        device_id=labels.get("device_id", ""),
        component=labels.get("component", ""),
        severity=labels.get("severity", ""),
        service="drain_now" if service == "drain_now" else "drain_when_idle",
        action=labels.get("action", ""),
        cluster=labels.get("cluster", ""),
    )
    yield fault, acts


def _reported(
    samples: Sequence[Sample], members: Mapping[str, Member], work: AbstractSet[str], now: float
) -> Iterator[tuple[Fault, bool]]:
    """The faults that other nodes must confirm, each of one node on the lists."""
    for sample in samples:
        labels, peer = sample.labels, sample.labels.get("peer", "")
        node = peer if peer in members else node_of(labels, members)
        if node is None or node in work or now - sample.value > MAX_RULE_SECONDS:
            continue
        port = "/".join(filter(None, (labels.get("port", ""), labels.get("protocol", ""))))
        fault = Fault(
            node=node,
            fault=labels.get("fault", ""),
            device_id=port or labels.get("unit", ""),
            component=labels.get("component", ""),
            severity=labels.get("severity", ""),
            service="drain_when_idle",
            action=labels.get("action", ""),
            cluster=labels.get("cluster", ""),
        )
        yield fault, True


def _unique(faults: Sequence[tuple[Fault, bool]]) -> list[tuple[Fault, bool]]:
    """One fault per identity: a node may be scraped with and without its port. Where two differ,
    the one that may not take a node out of service counts.
    """
    unique: dict[tuple[str, str, str], tuple[Fault, bool]] = {}
    for fault, acts in sorted(faults, key=lambda pair: (pair[1], pair[0].service == "drain_now")):
        unique.setdefault(fault.identity, (fault, acts))
    return [unique[identity] for identity in sorted(unique)]


def _name(labels: Mapping[str, str], members: Mapping[str, Member]) -> str:
    """The node's name on the lists; for a node not on the lists, its address without the port."""
    return node_of(labels, members) or host_of(labels.get("instance", ""))


def _node(sample: Sample, members: Mapping[str, Member]) -> str:
    return _name(sample.labels, members)


def _nodes(
    by_part: Mapping[str, Sequence[Sample]], part: str, members: Mapping[str, Member]
) -> Iterator[str]:
    return (_node(sample, members) for sample in by_part.get(part, ()))
