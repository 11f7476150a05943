"""The hub's settings: `nodevitals hub --config.file=FILE`, strict YAML.

Each section belongs to the module that it names. The HTTP server's TLS is configured as the
agent's: `--web.config.file`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Literal
from urllib.parse import urlsplit

import msgspec

from nodevitals.checks.model import CheckRequest, Role, TestRequest
from nodevitals.checks.requests.presets import PRESETS
from nodevitals.document import Problem
from nodevitals.document.local import LocalFile, LocalFiles
from nodevitals.probes.common.discovery import FileSource, NameSource
from nodevitals.probes.fabric.settings import StaticSource
from nodevitals.quantities import Seconds
from nodevitals_hub.settings import notification_routes, schedule_times
from nodevitals_hub.settings.agents import AgentsSettings
from nodevitals_hub.settings.response import (
    DrillSettings,
    IncidentsSettings,
    NotifySettings,
    OutOfServiceSettings,
    ServerSettings,
)


class AccessSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Who may do what (web/access.py). Users and their passwords are those of the web
    configuration file.
    """

    anonymous: Role | None = "read"
    """Role of a client without a login; null asks all clients to log in."""
    users: dict[str, Role] = {}
    """Role of each user of the web configuration file; the others may read."""
    tokens_file: LocalFile | None = None
    """YAML file with bearer tokens: a list of `{name: ci, role: run, sha256: HEX}`, or `token`
    instead of `sha256`."""


class NodesSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The nodes: lists in the formats of Prometheus, with their labels, as for the agents' probe
    `fabric` (members.py).
    """

    static: tuple[StaticSource, ...] = ()
    """Nodes, listed here. Example: `[{targets: [gpu-1, gpu-2], labels: {pool: train}}]`"""
    file_sd: tuple[LocalFiles | FileSource, ...] = ()
    """Files that list nodes. Example: `["/etc/nodevitals/nodes/*.yaml"]`"""
    dns_sd: tuple[str | NameSource, ...] = ()
    """DNS names of nodes."""
    refresh: Seconds = 30.0
    """Time between two readings of the lists."""


class CollectivesSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What starts collectives (checks/launchers)."""

    launcher: Literal["none", "mpirun", "volcano", "mpijob"] = "none"
    """none: collectives are refused."""
    image: str = ""
    """volcano, mpijob: image with mpirun, sshd and the tool."""
    namespace: str = "default"
    """volcano, mpijob: namespace of the jobs."""
    rdma_resource: str = ""
    """volcano, mpijob: resource of the RDMA devices. Example: `rdma/hca`"""
    rdma_count: Annotated[int, msgspec.Meta(ge=1, le=64)] = 1
    """volcano, mpijob: number of that resource per worker."""
    networks: str = ""
    """volcano, mpijob: value of the annotation k8s.v1.cni.cncf.io/networks."""
    host_network: bool = False
    """volcano, mpijob: run in the node's network."""
    shared_memory: str = "16Gi"
    """volcano, mpijob: size of /dev/shm."""
    queue: str = ""
    """volcano: queue of the job."""
    ssh_user: str = ""
    """mpirun: user on the nodes; by default that of the hub."""


class PresetSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A named set of parameters."""

    kind: Literal["pair", "matrix", "collective", "node"]
    """Kind of the check. Example: `matrix`"""
    test: TestRequest = TestRequest()
    """Its parameters. Example: `{tool: perftest, device: mlx5_0, sizes: 1MiB, queue_pairs: 8}`"""
    rounds: int | None = None
    """matrix: rounds of a tournament."""
    share: float | None = None
    """Slow is below this share."""
    expected: str | None = None
    """Rate of a healthy link. Example: `380Gb/s`"""


class ScheduleSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A check that is repeated (schedules.py)."""

    check: CheckRequest
    """What to run, as in the REST API.
    Example: `{kind: matrix, preset: NAME, where: {pool: train}}`"""
    every: Seconds = 86400.0
    """Time between two starts."""
    window: str = ""
    """Time of the day in which it may start, in UTC; by default any. Example: `01:00-05:00`"""
    node_hours: Annotated[float, msgspec.Meta(gt=0)] | None = None
    """Most node hours that all checks of this schedule may take within 7 days."""


class AlertCheckSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A check that an alert asks for (alerts.py)."""

    alertname: str
    """Name of the alert. Example: `NodeFabricSlow`"""
    preset: str
    """What to run. Example: `NAME`"""
    with_healthy: Annotated[int, msgspec.Meta(ge=0, le=64)] = 3
    """Number of other nodes to test it with: of the same group, without an alert, idle."""
    group_by: str = ""
    """Label that these have in common with it. Example: `leaf`"""
    at_most_every: Seconds = 3600.0
    """Time in which a node is tested once, however often the alert comes."""


class LeasesSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Second-level monitoring on demand (leases.py)."""

    max_nodes: Annotated[int, msgspec.Meta(ge=0, le=10_000)] = 64
    """Nodes that may be monitored every second at a time."""
    max_duration: Seconds = 7200.0
    """Longest lease."""
    alerts: dict[str, tuple[str, ...]] = {}
    """Probes to monitor every second for an alert. Example: `{NodeFabricSlow: [rdma, network]}`"""
    alert_duration: Seconds = 1800.0
    """Duration of a lease that an alert asked for."""


class ResourcesSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The custom resource Check (resources.py)."""

    enabled: bool = False
    """Whether to follow the resource; needs a cluster."""
    namespace: str = ""
    """Namespace to follow; by default all."""
    list_every: Seconds = 60.0
    """Time between two lists, as watches may end without a notice."""
    role: Literal["run", "act"] = "run"
    """Role of those who may create the resource; `force` in a resource needs act."""


class LimitsSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Bounds of all checks."""

    queued: Annotated[int, msgspec.Meta(ge=1, le=10_000)] = 100
    """Checks that may wait; more are refused (HTTP 429)."""
    running: Annotated[int, msgspec.Meta(ge=1, le=64)] = 8
    """Checks that run at a time, on different nodes."""
    pairs: Annotated[int, msgspec.Meta(ge=1, le=5000)] = 256
    """Pair tests that run at a time, over all checks."""
    node_hours: Annotated[float, msgspec.Meta(gt=0)] = 500.0
    """Most node hours of one check."""
    keep: Seconds = 90 * 86400.0
    """Time for which results are kept."""
    keep_checks: Annotated[int, msgspec.Meta(ge=10, le=1_000_000)] = 10_000
    """Number of checks above which the oldest are removed."""


class HubSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The whole file."""

    cluster: str = ""
    """Name of the cluster, shown on every page."""
    external_url: str = ""
    """Address at which people reach this hub, for links. Example: `https://hub.example.org`"""
    state_directory: str = "/var/lib/nodevitals-hub"
    """Directory of the store."""
    access: AccessSettings = AccessSettings()
    """Who may do what."""
    nodes: NodesSettings = NodesSettings()
    """The nodes."""
    agents: AgentsSettings | None = None
    """How the hub talks with the agents; without it, pair tests are refused."""
    collectives: CollectivesSettings = CollectivesSettings()
    """What starts collectives."""
    presets: dict[str, PresetSettings] = {}
    """Named parameters, shown on the page."""
    schedules: dict[str, ScheduleSettings] = {}
    """Checks that are repeated."""
    alerts: tuple[AlertCheckSettings, ...] = ()
    """Checks that alerts ask for."""
    leases: LeasesSettings = LeasesSettings()
    """Second-level monitoring on demand."""
    resources: ResourcesSettings = ResourcesSettings()
    """The custom resource Check."""
    limits: LimitsSettings = LimitsSettings()
    """Bounds of all checks."""
    prometheus: ServerSettings | None = None
    """Prometheus, which is asked for confirmed faults and for owners of jobs."""
    alertmanager: ServerSettings | None = None
    """Alertmanager, which is asked for alerts that were silenced: it sends no end of them."""
    notify: NotifySettings = NotifySettings()
    """Notifications."""
    incidents: IncidentsSettings = IncidentsSettings()
    """Incidents."""
    out_of_service: OutOfServiceSettings | None = None
    """Nodes taken out of service; without it, none is."""
    drill: DrillSettings = DrillSettings()
    """Rehearsals."""

    def problems(self) -> Iterator[Problem]:
        """Report what does not fit together."""
        for check in self.checks():
            yield from check

    def checks(self) -> tuple[Iterator[Problem], ...]:
        """The same, in parts that need different sections."""
        return (
            self._own_problems(),
            iter(()) if self.agents is None else self.agents.problems(),
            self._alert_problems(),
            self._out_of_service_problems(),
            self._schedule_problems(),
            notification_routes.problems(self.notify),
        )

    def _own_problems(self) -> Iterator[Problem]:
        if self.external_url and not _is_url(self.external_url):
            yield Problem("external_url", "not a URL: write http:// or https:// and a name")

    def _alert_problems(self) -> Iterator[Problem]:
        for number, alert in enumerate(self.alerts):
            if alert.alertname in {other.alertname for other in self.alerts[:number]}:
                yield Problem(f"alerts[{number}].alertname", f"{alert.alertname!r} is there twice")
            if alert.preset not in {**PRESETS, **self.presets}:
                yield Problem(f"alerts[{number}].preset", f"no preset {alert.preset!r}: add it")

    def _out_of_service_problems(self) -> Iterator[Problem]:
        if self.out_of_service is not None:
            yield from self.out_of_service.problems()
            if self.prometheus is None:
                yield Problem("out_of_service", "needs the section prometheus")
            if self.out_of_service.recovery is not None and self.agents is None:
                text = "needs the section agents: other nodes are asked through it"
                yield Problem("out_of_service.recovery", text)

    def _schedule_problems(self) -> Iterator[Problem]:
        for name, schedule in self.schedules.items():
            yield from schedule_times.problems(name, schedule, self.presets, self.limits.keep)


def _is_url(text: str) -> bool:
    try:
        parts = urlsplit(text)
        return parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        return False
