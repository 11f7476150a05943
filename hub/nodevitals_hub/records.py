"""Records of what the hub does about alerts: bodies of REST, rows of respond.db.

Times are seconds since the epoch. A record is replaced as a whole when it changes.
"""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

from nodevitals_hub.settings.response import Service, Severity

MAX_ALERTS = 10_000
ZERO_TIME = "0001-01-01T00:00:00Z"
"""What Alertmanager writes for a time that is not set."""

Fingerprint = Annotated[str, msgspec.Meta(pattern=r"^[0-9a-zA-Z]{1,64}\Z")]
Identity = Annotated[str, msgspec.Meta(pattern=r"^[0-9]{8}-[0-9]{6}-[a-z0-9]{6}\Z")]


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
        """Whether it rehearses a notification: nothing may act on it."""
        return self.labels.get("drill") == "true"


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
    """A message, and how it differs from what its group said last."""

    again: tuple[Fingerprint, ...] = ()
    """Alerts that fire, and were resolved before: with the same start where Prometheus was away."""


class Received(msgspec.Struct, frozen=True, kw_only=True):
    """A message on disk."""

    number: int
    """In the order of arrival."""
    time: float
    message: KeptMessage


class Delivery(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One notification to one channel. It is sent at least once."""

    id: str
    """The same for the same notification, so that one is queued once."""
    channel: str
    created: float
    title: str
    text: str
    severity: str = ""
    owner: str = ""
    """The owner of jobs whom it is for."""
    thread: str = ""
    """The same for notifications about one group of alerts."""
    resolved: bool = False
    """Whether it says that all of them have ended."""
    incident_key: str = ""
    """Of the incident that can be acknowledged with its link, which the text gets as it is sent."""
    attempts: int = 0
    next_try: float = 0.0
    state: Literal["waiting", "sent", "dropped", "superseded"] = "waiting"
    """superseded: a newer one of its thread took its place before it was sent."""
    ended: float | None = None
    error: str = ""
    """Why the last attempt failed, or what took its place, in one line without secrets."""
    alerts: tuple[Alert, ...] = ()
    """What it is about, until it has ended: a newer one takes over what it does not mention."""
    says: str = ""
    """The same for the same alerts in the same states."""
    since: float | None = None
    """When the oldest was created whose place it took."""


class Incident(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A fault that people repair: all alerts of one node, or one fleet incident."""

    id: Identity
    key: str
    """cluster and node, or cluster and the labels of a fleet incident."""
    title: str
    severity: Severity
    """The most severe that it had."""
    cluster: str = ""
    node: str = ""
    pool: str = ""
    alerts: dict[str, Alert] = {}
    """All that it had, by fingerprint, in their last state."""
    opened: float
    acknowledged: float | None = None
    acknowledged_by: str = ""
    resolved: float | None = None
    false_alarm: bool | None = None
    """What a person said of it."""
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
    """Seconds for which an isolation has had it, by the monotonic clock, without a gap."""

    @property
    def identity(self) -> tuple[str, str, str]:
        """What identifies it, of this cluster."""
        return self.node, self.fault, self.device_id


IsolationState = Literal[
    "waiting", "refused", "isolated", "testing", "kept", "returned", "canceled", "ended"
]
"""waiting: within the grace, or ended less than ten minutes ago. refused: a limit or the breaker;
nothing was done, and nothing will be before its faults have ended, unless a person asks for it.
isolated: out of service. testing: clean for long enough, its checks run. kept: out of service until
a person returns it. returned: back in service. canceled: a person returned it, or it was out of
service before. ended: its faults ended before anything was done."""
OPEN_STATES: tuple[IsolationState, ...] = ("waiting", "refused", "isolated", "testing", "kept")


class Step(msgspec.Struct, frozen=True):
    """What happened, when, by whom (a person's name, or hub)."""

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
    """All that it had; a second one extends it."""
    present: tuple[Fault, ...] = ()
    """Those that Prometheus said last."""
    created: float
    acted: float | None = None
    """When the node was taken out of service."""
    clean_since: float | None = None
    """Since when it has had none of its faults, and data about it were fresh."""
    ended: float | None = None
    reason: str = ""
    """Why it is in its state, in one line."""
    check: str = ""
    """The check that runs, or ran last, before the return."""
    steps: tuple[Step, ...] = ()
    decided: float | None = None
    """When it was decided to take the node out of service; before it is done."""
    tried: bool = False
    """Whether the scheduler was asked to, and may have done it."""
    withdrawn: str = ""
    """Why it is not to be done any longer, where the scheduler may have done it already."""
    approved_by: str = ""
    """The person who asked for it although it was refused."""
    clean_for: float = 0.0
    """Seconds since `clean_since` by the monotonic clock, without those in which nothing was known
    of the node."""
    restoring: str = ""
    """Who asked to return the node, until it is done: a person's name, or hub."""
    undescribed: bool = False
    """Whether the node's reason has to be brought up to date."""
    drained: float | None = None
    """When nothing that was to end ran any longer."""
    taken: bool = False
    """Whether it ended because a person had taken the node."""
    came_back: int = 0
    """How often its faults came back before one of them had lasted for the grace."""
    late_return: float | None = None
    """When a mark that came after its end was removed, which is done once."""


class Drill(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A fault that is raised on purpose, in alerts only."""

    id: Identity
    node: str
    fault: str
    severity: Severity
    component: str = "node"
    created: float
    until: float
    by: str
    ended: float | None = None
