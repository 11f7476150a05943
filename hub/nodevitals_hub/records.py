"""Records that the hub makes from alerts: REST bodies, and rows of respond.db.

Times are seconds since the epoch. A record is replaced as a whole when it changes.
"""

from __future__ import annotations

from typing import Annotated, Literal
from urllib.parse import urlencode

import msgspec

from nodevitals_hub.settings.response import Service, Severity

MAX_ALERTS = 10_000
ZERO_TIME = "0001-01-01T00:00:00Z"
"""Alertmanager's value for a time that is not set."""

Fingerprint = Annotated[str, msgspec.Meta(pattern=r"^[0-9a-zA-Z]{1,64}\Z")]
Identity = Annotated[str, msgspec.Meta(pattern=r"^[0-9]{8}-[0-9]{6}-[a-z0-9]{6}\Z")]


CHECKED_COMPONENTS = ("fabric", "network", "rdma")
"""Components of alerts on links, which a test between nodes shows."""


class Alert(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One alert of a message, or of Alertmanager's API. Times are RFC 3339, as they were sent."""

    status: Literal["firing", "resolved"]
    fingerprint: Fingerprint
    labels: dict[str, str]
    annotations: dict[str, str] = {}
    starts_at: str = msgspec.field(default="", name="startsAt")
    ends_at: str = msgspec.field(default="", name="endsAt")
    generator_url: str = msgspec.field(default="", name="generatorURL")

    @property
    def is_drill(self) -> bool:
        """Whether it only tests the notification: nothing may act on it."""
        return self.labels.get("drill") == "true"

    @property
    def check_path(self) -> str:
        """Path of the hub that opens a check of its node; '' where none would show more."""
        instance = self.labels.get("instance", "")
        if self.labels.get("component") not in CHECKED_COMPONENTS or not instance:
            return ""
        fields = {"nodes": instance[:253], "alert": self.labels.get("alertname", "")[:200]}
        return f"/checks/for?{urlencode(fields)}"


class Message(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The body of Alertmanager's webhook, version 4; other fields are ignored."""

    version: Literal["4"]
    group_key: str = msgspec.field(name="groupKey")
    receiver: str
    status: Literal["firing", "resolved"]
    alerts: Annotated[tuple[Alert, ...], msgspec.Meta(max_length=MAX_ALERTS)]
    group_labels: dict[str, str] = msgspec.field(default_factory=dict, name="groupLabels")
    external_url: str = msgspec.field(default="", name="externalURL")
    truncated: int = msgspec.field(default=0, name="truncatedAlerts")


class KeptMessage(Message, frozen=True, kw_only=True):
    """A message, and how it differs from the earlier state of its group."""

    again: tuple[Fingerprint, ...] = ()
    """Firing alerts that were resolved before; after an outage of Prometheus, with equal starts."""


class Received(msgspec.Struct, frozen=True, kw_only=True):
    """A message on disk."""

    number: int
    """Number in the order of arrival."""
    time: float
    message: KeptMessage


class Delivery(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One notification to one channel. It is sent at least once."""

    id: str
    """Equal for the same notification, so that it is queued once."""
    channel: str
    created: float
    title: str
    text: str
    severity: str = ""
    owner: str = ""
    """The owner of jobs that it is for."""
    thread: str = ""
    """Equal for notifications about one group of alerts."""
    resolved: bool = False
    """Whether all its alerts are resolved."""
    incident_key: str = ""
    """Key of the incident that can be acknowledged by the link, which is added when it is sent."""
    attempts: int = 0
    next_try: float = 0.0
    state: Literal["waiting", "sent", "dropped", "superseded"] = "waiting"
    """superseded: a newer delivery of its thread replaced it before it was sent."""
    ended: float | None = None
    error: str = ""
    """Why the last attempt failed, or what replaced it, in one line without secrets."""
    alerts: tuple[Alert, ...] = ()
    """Its alerts, until it has ended: a newer delivery takes over those that it does not have."""
    says: str = ""
    """Equal for the same alerts in the same states."""
    since: float | None = None
    """When the oldest delivery that it replaced was created."""


class Incident(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A fault that people repair: all alerts of one node, or one fleet incident."""

    id: Identity
    key: str
    """cluster and node, or cluster and the labels of a fleet incident."""
    title: str
    severity: Severity
    """The highest severity of its alerts so far."""
    cluster: str = ""
    node: str = ""
    pool: str = ""
    alerts: dict[str, Alert] = {}
    """All its alerts so far, by fingerprint, in their last state."""
    opened: float
    acknowledged: float | None = None
    acknowledged_by: str = ""
    resolved: float | None = None
    false_alarm: bool | None = None
    """Whether a person marked it as a false alarm; None before."""
    marked_by: str = ""
    note: str = ""
    drill: bool = False


class Fault(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A series of nodevitals:fault_confirmed (docs/automation.md)."""

    node: str
    """Name of the node on the lists."""
    fault: str
    device_id: str = ""
    component: str = ""
    severity: str = ""
    service: Service
    action: str = ""
    cluster: str = ""
    lasted: float = 0.0
    """Seconds for which an isolation has had it without a gap, by the monotonic clock."""

    @property
    def identity(self) -> tuple[str, str, str]:
        """Node, fault and device, which identify it within the cluster."""
        return self.node, self.fault, self.device_id


IsolationState = Literal[
    "waiting", "refused", "isolated", "testing", "kept", "returned", "canceled", "ended"
]
"""waiting: within the grace, or its faults ended less than ten minutes ago. refused: by a limit or
the breaker; nothing was done, and nothing will be before its faults have ended, unless a person
approves it. isolated: out of service. testing: clean for long enough, its checks run. kept: out of
service until a person returns it. returned: back in service. canceled: a person returned it, or it
was out of service before. ended: its faults ended before anything was done."""
OPEN_STATES: tuple[IsolationState, ...] = ("waiting", "refused", "isolated", "testing", "kept")


class Step(msgspec.Struct, frozen=True):
    """An event: when, what, by whom (a person's name, or hub)."""

    time: float
    text: str
    by: str = "hub"


class Isolation(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A node that the hub takes out of service. Its id is part of the mark on the node."""

    id: Identity
    node: str
    pool: str = ""
    dry_run: bool
    """Whether nothing was changed on the node."""
    state: IsolationState
    faults: tuple[Fault, ...]
    """All its faults so far; a further fault of the node is added."""
    present: tuple[Fault, ...] = ()
    """The faults in the last answer of Prometheus."""
    created: float
    acted: float | None = None
    """When the node was taken out of service."""
    clean_since: float | None = None
    """Since when the node has none of its faults, and fresh data."""
    ended: float | None = None
    reason: str = ""
    """Why it is in its state, in one line."""
    check: str = ""
    """The current or last check before the return."""
    steps: tuple[Step, ...] = ()
    decided: float | None = None
    """When the hub decided to take the node out of service, before it does so."""
    tried: bool = False
    """Whether the hub has called the scheduler, which may have executed it."""
    withdrawn: str = ""
    """Why the decision is withdrawn; the scheduler may have executed it already."""
    approved_by: str = ""
    """The person who approved it after it was refused."""
    clean_for: float = 0.0
    """Seconds since `clean_since` by the monotonic clock, without times without data about the
    node."""
    restoring: str = ""
    """The requester of the return, until it is done: a person's name, or hub."""
    undescribed: bool = False
    """Whether the node's reason must be updated."""
    drained: float | None = None
    """When everything that had to end had ended."""
    taken: bool = False
    """Whether it ended because a person had taken the node."""
    came_back: int = 0
    """How often its faults came back before one of them had lasted for the grace."""
    late_return: float | None = None
    """When a mark that appeared after its end was removed, which is done once."""


class Drill(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A fault that a person raises in alerts only, to test notifications."""

    id: Identity
    node: str
    fault: str
    severity: Severity
    component: str = "node"
    created: float
    until: float
    by: str
    ended: float | None = None
