"""The owners of the jobs that a fault concerns.

In: alerts, series of nodevitals:job_device (rules/job.yaml). Out: a query, and one notice per owner
and kind, with a key per job: an owner is notified of a job once per incident. Pure. Users choose
the names of owners and jobs: they are untrusted data.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from hashlib import sha256
from typing import Literal, NamedTuple, Protocol

import msgspec

from nodevitals_hub.records import Alert
from nodevitals_hub.settings.response import OwnersSettings

RECENT = "10m"
"""Jobs that were on a node within this time count: a fault may have ended them already, and a node
that is down has no current series."""
MAX_QUERY_CHARACTERS = 60_000
_SPECIAL = frozenset("\\.+*?()|[]{}^$")

NoticeKind = Literal["at_risk", "killed"]
"""at_risk: on a faulty node or device. killed: the kernel ended processes for lack of memory."""


class SampleLike(Protocol):
    """A series of an instant query (prometheus_queries.Sample)."""

    @property
    def labels(self) -> dict[str, str]:
        """Its labels."""


class Job(NamedTuple):
    """A job or pod on a node."""

    name: str
    """namespace/name, slurm/ID, user/NAME."""
    cluster: str
    node: str
    since: str
    """When the fault began, as Alertmanager sent it."""
    container: str = ""
    key: str = ""
    """Equal for the same job, kind, owner and incident: each key is named once."""
    place: str = ""
    """As `key`, but with the node instead of the incident: JobOwnerImpact comes before the alert
    that opens an incident.
    """


class Notice(NamedTuple):
    """A notice for an owner."""

    owner: str
    kind: NoticeKind
    jobs: tuple[Job, ...]

    def without(self, keys: Collection[str]) -> Notice | None:
        """The notice without jobs that were named before; None where no other is left."""
        jobs = tuple(job for job in self.jobs if job.key not in keys)
        return self._replace(jobs=jobs) if jobs else None


def owner_channel(owner: str, settings: OwnersSettings) -> str:
    """The channel of an owner; '' where the owner is not notified."""
    return settings.channels.get(owner, settings.channel) if owner else ""


def owner_channels(alert: Alert, settings: OwnersSettings) -> dict[str, str]:
    """The owner that an alert names, with the channel; empty where it names no owner."""
    owner = alert.labels.get("owner", "")
    channel = owner_channel(owner, settings)
    return {owner: channel} if channel else {}


def is_of_a_job(alert: Alert) -> bool:
    """Whether it is an alert for an owner, as JobOwnerImpact and PodOomKilled are."""
    return alert.labels.get("component") == "job" and bool(alert.labels.get("owner"))


def asks_for_owners(alert: Alert) -> bool:
    """Whether its fault ends jobs on a node or device that the alert names. A drill does not."""
    labels = alert.labels
    return (
        alert.status == "firing"
        and not alert.is_drill
        and labels.get("severity") == "critical"
        and labels.get("scope") in ("device", "node")
        and labels.get("component") != "job"
        and bool(labels.get("uuid") or labels.get("instance"))
    )


def owner_query(alerts: Iterable[Alert]) -> str:
    """The query for the jobs that alerts concern; '' where they concern none. Nodes that do not fit
    into the query are left out: so many nodes are a fleet incident.
    """
    chosen = [alert.labels for alert in alerts if asks_for_owners(alert)]
    devices = {labels["uuid"] for labels in chosen if labels.get("uuid")}
    nodes = {labels["instance"] for labels in chosen if not labels.get("uuid")}
    parts = []
    for label, values in (("uuid", devices), ("instance", nodes)):
        words, left = [], MAX_QUERY_CHARACTERS // 2
        for value in sorted(values):
            word = _literal(value)
            left -= len(word) + 1
            if value.isprintable() and left > 0:
                words.append(word)
        if words:
            selector = f'nodevitals:job_device{{job="", {label}=~"{"|".join(words)}"}}'
            parts.append(f"last_over_time({selector}[{RECENT}])")
    labels = "cluster, instance, uuid, namespace, pod, job_name, owner"
    return f"group by ({labels}) ({' or '.join(parts)})" if parts else ""


def notices(
    alerts: Sequence[Alert],
    samples: Iterable[SampleLike],
    incident_of: Callable[[Alert], str],
) -> tuple[Notice, ...]:
    """One notice per owner and kind, for the firing alerts of a message. `samples` is the answer to
    owner_query; `incident_of` returns the id of an alert's incident, or ''.
    """
    jobs_of: dict[tuple[str, NoticeKind], dict[str, Job]] = {}

    def add(owner: str, kind: NoticeKind, labels: dict[str, str], alert: Alert) -> None:
        job = _job(owner, kind, labels, alert, incident_of(alert))
        if owner and job.name:
            jobs_of.setdefault((owner, kind), {}).setdefault(job.key, job)

    series = [sample.labels for sample in samples]
    for alert in alerts:
        if alert.status != "firing" or alert.is_drill:
            continue
        labels = alert.labels
        if is_of_a_job(alert):
            killed = labels.get("fault") == "pod_oom_kill"
            add(labels["owner"], "killed" if killed else "at_risk", labels, alert)
        elif asks_for_owners(alert):
            for job_labels in series:
                if _is_on(job_labels, labels):
                    add(job_labels.get("owner", ""), "at_risk", job_labels, alert)
    return tuple(
        Notice(owner, kind, tuple(jobs.values())) for (owner, kind), jobs in sorted(jobs_of.items())
    )


def _is_on(series: dict[str, str], labels: dict[str, str]) -> bool:
    """Whether a job is on the device or node of an alert."""
    if labels.get("uuid"):
        return series.get("uuid") == labels["uuid"]
    clusters = {series.get("cluster", ""), labels.get("cluster", "")} - {""}
    return series.get("instance") == labels["instance"] and len(clusters) < 2


def _job(owner: str, kind: NoticeKind, labels: dict[str, str], alert: Alert, incident: str) -> Job:
    known = {**alert.labels, **labels}
    pod = labels.get("pod") or labels.get("job_name", "")
    name = f"{labels.get('namespace', '')}/{pod}" if pod else ""
    cluster, node = known.get("cluster", ""), known.get("instance", "")
    container = labels.get("container", "") if kind == "killed" else ""
    # Without an incident, a job is named once per day; the shipped route does not repeat alerts.
    episode = incident or f"{node} {alert.starts_at[:10]}"
    parts = [owner, kind, name, container, cluster]
    key, place = _digest([*parts, episode]), _digest(["place", *parts, node])
    return Job(name, cluster, node, alert.starts_at, container, key, place)


def _digest(parts: Sequence[str]) -> str:
    return f"owner {sha256(msgspec.json.encode(parts)).hexdigest()}"


def _literal(value: str) -> str:
    """A value escaped for RE2, and then for a PromQL string."""
    escaped = "".join(
        f"\\{character}" if character in _SPECIAL else character for character in value
    )
    return escaped.replace("\\", "\\\\").replace('"', '\\"')
