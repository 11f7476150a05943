"""Settings of what the hub does about alerts; sections of the hub's file (hub/settings.py).

Everything that leaves the hub is off until it is set here, and what acts on nodes starts with
`dry_run: true`. Secrets are in files; no setting holds one.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Literal

import msgspec

from nodevitals.document import Problem
from nodevitals.document.local import Local, LocalFile, LocalProgram
from nodevitals.quantities import Seconds
from nodevitals_hub.settings import repairs
from nodevitals_hub.settings.repairs import RepairSettings

Severity = Literal["critical", "warning", "info"]
Service = Literal["drain_now", "drain_when_idle"]
"""Values of the label `service` of nodevitals:fault_confirmed that take a node out of service."""
Language = Literal["en", "zh", "both"]
Share = Annotated[float, msgspec.Meta(gt=0, le=1)]
Words = Annotated[tuple[str, ...], msgspec.Meta(min_length=1, max_length=64)]
Command = Annotated[tuple[str, ...], msgspec.Meta(min_length=1, max_length=64), Local("command")]


class ServerSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A server that the hub asks."""

    url: str
    """Its address. Example: `http://prometheus:9090`"""
    token_file: LocalFile | None = None
    """File with a bearer token."""
    user: str = ""
    """User of HTTP basic authentication."""
    password_file: LocalFile | None = None
    """File with that user's password."""
    ca_file: LocalFile | None = None
    """Authority of its certificate; by default those of the system."""


class ChannelSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Where notifications go: a chat robot, a mail server, a pager (channels.py)."""

    url_file: LocalFile
    """File with one URL of Apprise, which holds the secret.
    Example: `/etc/nodevitals/secrets/dingtalk-url`"""
    language: Language | None = None
    """Language of the texts; by default that of `notify`."""
    per_minute: Annotated[int, msgspec.Meta(ge=1, le=1000)] = 20
    """Messages per minute; more are put together in one (a digest)."""
    max_bytes: Annotated[int, msgspec.Meta(ge=500, le=1_000_000)] = 20_000
    """Longest message; a longer one is cut and links to the incident."""


class RouteSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which alerts go to which channels. A condition that is left out holds for all alerts; every
    route that matches is used.
    """

    channels: Words
    """Names of channels. Example: `[NAME]`"""
    receivers: tuple[str, ...] = ()
    """Receivers in Alertmanager's configuration. Example: `[chat]`"""
    severities: tuple[Severity, ...] = ()
    """Severities. Example: `[critical]`"""
    components: tuple[str, ...] = ()
    """Components. Example: `[mount, network]`"""
    pools: tuple[str, ...] = ()
    """Pools: the label `pool` of the alert, or that of the node on the lists."""
    hours: str = ""
    """Time of the day, in `notify.time_zone`; by default any. Example: `09:00-18:00`"""
    days: tuple[Literal["mon", "tue", "wed", "thu", "fri", "sat", "sun"], ...] = ()
    """Days of the week. Example: `[mon, tue, wed, thu, fri]`"""
    resolved: bool = True
    """Whether to notify of the end as well."""


class OwnersSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Notifications to the owners of the jobs on a faulty device or node (owners.py)."""

    channels: dict[str, str] = {}
    """Name of the channel of each owner. Example: `{team-vision: NAME}`"""
    channel: str = ""
    """Channel of the other owners; by default they are not notified. Where the URL of a channel
    contains `{owner}`, the owner's name is put there."""


class WatchdogSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The end of the alert Watchdog, which always fires: Prometheus or Alertmanager is down, or the
    way from one to the other (watchdog.py). A service outside of the cluster notices a hub that is
    down as well.
    """

    channels: Words
    """Names of channels. Example: `[operations]`"""
    after: Seconds = 300.0
    """Time without a message of it."""


class NotifySettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Notifications (notify.py). Alertmanager groups, waits, mutes and repeats."""

    language: Language = "en"
    """Language of the texts."""
    time_zone: str = "UTC"
    """Time zone of the texts and of `hours`. Example: `Asia/Shanghai`"""
    channels: dict[str, ChannelSettings] = {}
    """Channels by name."""
    routes: tuple[RouteSettings, ...] = ()
    """Which alerts go where."""
    owners: OwnersSettings | None = None
    """Owners of jobs; without it, they are not notified by the hub."""
    watchdog: WatchdogSettings | None = None
    """The alert Watchdog; without it, its messages are only acknowledged."""
    same_within: Seconds = 3600.0
    """A message of Alertmanager is a repetition, and not sent, where its group has said the same of
    each of its alerts last and within this time; after it, it is a reminder."""
    give_up_after: Seconds = 86400.0
    """A notification that could not be delivered for so long is dropped, counted and shown."""
    max_queued: Annotated[int, msgspec.Meta(ge=10, le=1_000_000)] = 10_000
    """Notifications that may wait; more messages of Alertmanager are refused (HTTP 503), and it
    sends them again."""


class TargetSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Times that a site wants to keep."""

    acknowledge: Seconds | None = None
    """Time to acknowledge. Example: `5m`"""
    repair: Seconds | None = None
    """Time to repair. Example: `4h`"""


class IncidentsSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Incidents (incidents.py): one per node, or per fleet incident."""

    severities: tuple[Severity, ...] = ("critical",)
    """Alerts of these severities open an incident."""
    targets: dict[Severity, TargetSettings] = {}
    """Times to keep, by severity. Example: `{critical: {acknowledge: 5m, repair: 4h}}`"""
    reopen_within: Seconds = 600.0
    """An alert that comes again so soon after the end continues the same incident."""
    keep: Seconds = 200 * 86400.0
    """Time for which incidents are kept."""


class SlurmSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How to reach Slurm."""

    scontrol: LocalProgram = "scontrol"
    """The program."""


class CommandSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Commands of a site, as lists of words, never through a shell. `{node}`, `{id}` and `{reason}`
    are replaced within a word.
    """

    isolate: Command
    """Takes a node out of service. Example: `[/usr/local/sbin/node-off, "{node}", "{reason}"]`"""
    restore: Command
    """Returns it. Example: `[/usr/local/sbin/node-on, "{node}", "{id}"]`"""
    status: Command
    """Prints `in service`, `isolated ID`, `out of service` or `unknown`.
    Example: `[/usr/local/sbin/node-status, "{node}"]`"""
    timeout: Seconds = 60.0
    """Longest time of one command."""


class LimitsPerPool(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Bounds of what the hub takes out of service. A pool is the label `pool` of the nodes' lists;
    nodes without it are one pool.
    """

    nodes: Annotated[int, msgspec.Meta(ge=0, le=10_000)] = 5
    """Nodes of a pool that may be out of service at a time."""
    share: Share = 0.05
    """Share of a pool that may be; at least one node, where `nodes` allows it."""
    per_hour: Annotated[int, msgspec.Meta(ge=0, le=10_000)] = 3
    """Nodes of a pool that may be taken out within an hour."""
    breaker_nodes: Annotated[int, msgspec.Meta(ge=1, le=10_000)] = 10
    """The breaker opens when so many nodes of the cluster get a fault within `breaker_within`."""
    breaker_share: Share = 0.10
    """It opens as well at this share of the nodes, from three nodes on."""
    breaker_within: Seconds = 900.0
    """Time in which they are counted."""
    breaker_for: Seconds = 1800.0
    """Time without a new fault after which it closes by itself."""


class ReturnSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The way back to service (isolation/return_checks.py)."""

    enabled: bool = False
    """Whether the hub returns nodes; else a person does, on the page."""
    clean: Seconds = 900.0
    """Time without any of its faults before a node is tested; at least ten minutes are
    useful, because a fault may come and go."""
    pair_preset: str = ""
    """Preset of a pair test with good partners after the node's own checks; by default none. With
    `expected`, unless the ports' own rates show what is well."""
    partners: Annotated[int, msgspec.Meta(ge=1, le=8)] = 2
    """Number of these partners."""
    again_within: Seconds = 86400.0
    """A node that fails again so soon after its return is kept out until a person returns it."""


RecoverableFault = Literal[
    "peer_unreachable", "node_reaches_nobody", "node_fabric_unreachable", "service_down"
]


class RecoverySettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Faults of logins, connections and services (isolation/recovery.py). Needs `agents`."""

    faults: Annotated[tuple[RecoverableFault, ...], msgspec.Meta(min_length=1)]
    """Those that take a node out of service as well, once other nodes confirm that it is this node;
    service_down, once its agent says so. Example: `[peer_unreachable]`"""
    observers: Annotated[int, msgspec.Meta(ge=2, le=16)] = 3
    """Other nodes that must confirm it: their agents are asked directly before the act."""


class OutOfServiceSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Nodes taken out of service for confirmed faults (isolations.py). Needs `prometheus`."""

    scheduler: Literal["kubernetes", "slurm", "command"]
    """What schedules jobs on the nodes. Example: `kubernetes`"""
    where: tuple[Annotated[dict[str, str], msgspec.Meta(min_length=1)], ...] = ()
    """Labels of the nodes that may be taken out of service; none by default.
    Example: `[{pool: train}]`"""
    dry_run: bool = True
    """Decide, log and count, and change nothing."""
    services: Annotated[tuple[Service, ...], msgspec.Meta(min_length=1)] = ("drain_now",)
    """Which confirmed faults."""
    recovery: RecoverySettings | None = None
    """Faults of logins, connections and services; without it, these take no node out of service."""
    grace: Seconds = 60.0
    """Time that a fault must last before its node is taken out."""
    every: Seconds = 15.0
    """Time between two queries."""
    limits: LimitsPerPool = LimitsPerPool()
    """Bounds."""
    drain: bool = False
    """kubernetes: whether pods are evicted for faults with `service="drain_now"`, respecting
    PodDisruptionBudgets. slurm: jobs always end by themselves."""
    drain_timeout: Seconds = 3600.0
    """Longest time in which evictions are tried again."""
    taint: str = "nodevitals.io/out-of-service"
    """kubernetes: key of the taint (NoSchedule) that is set beside the cordon; "" for none."""
    slurm: SlurmSettings = SlurmSettings()
    """Slurm."""
    command: CommandSettings | None = None
    """Commands."""
    back: ReturnSettings = ReturnSettings()
    """The way back to service."""
    repairs: tuple[RepairSettings, ...] = ()
    """What is started on a node out of service, once; by default nothing."""

    @property
    def recoverable(self) -> tuple[str, ...]:
        """The faults that other nodes must confirm."""
        return () if self.recovery is None else self.recovery.faults

    def problems(self) -> Iterator[Problem]:
        """Report what does not fit together."""
        if self.scheduler == "command" and self.command is None:
            yield Problem("out_of_service.command", "missing: the scheduler is `command`")
        yield from repairs.problems(self.repairs, "out_of_service.repairs", self.scheduler)


class DrillSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Rehearsals of the way of a notification (drill.py)."""

    enabled: bool = False
    """Whether drills may be started, by role act."""
    longest: Seconds = 1800.0
    """Longest drill."""
    at_a_time: Annotated[int, msgspec.Meta(ge=1, le=20)] = 1
    """Drills at a time."""
