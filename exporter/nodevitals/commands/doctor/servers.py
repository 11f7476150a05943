"""The shapes of the answers of Prometheus and Alertmanager: only the fields that are read.

https://prometheus.io/docs/prometheus/latest/querying/api/, and api/v2/openapi.yaml of Alertmanager.
"""

# ruff: noqa: N815 # their names

from __future__ import annotations

import math
from datetime import datetime
from typing import Annotated

import msgspec

Moment = Annotated[datetime, msgspec.Meta(tz=True)]


class Target(msgspec.Struct):
    """One of /api/v1/targets."""

    labels: dict[str, str]
    scrapeUrl: str
    health: str
    lastScrape: Moment
    lastError: str = ""
    scrapePool: str = ""
    scrapeInterval: str = ""
    lastScrapeDuration: float = 0.0


class _Targets(msgspec.Struct):
    activeTargets: list[Target]


class TargetsAnswer(msgspec.Struct):
    """/api/v1/targets."""

    data: _Targets


class FiringAlert(msgspec.Struct):
    """An alert of a rule; `state` is pending or firing."""

    labels: dict[str, str]
    state: str


class LoadedRule(msgspec.Struct):
    """One rule of /api/v1/rules."""

    name: str
    query: str
    health: str
    lastError: str = ""
    alerts: list[FiringAlert] = []


class RuleGroup(msgspec.Struct):
    """One group of /api/v1/rules."""

    name: str
    rules: list[LoadedRule]
    file: str = ""
    interval: float = 0.0
    evaluationTime: float = 0.0


class _Groups(msgspec.Struct):
    groups: list[RuleGroup]


class RulesAnswer(msgspec.Struct):
    """/api/v1/rules."""

    data: _Groups


class _Version(msgspec.Struct):
    version: str


class BuildAnswer(msgspec.Struct):
    """/api/v1/status/buildinfo."""

    data: _Version


class _Runtime(msgspec.Struct):
    startTime: Moment


class RuntimeAnswer(msgspec.Struct):
    """/api/v1/status/runtimeinfo."""

    data: _Runtime


class _Manager(msgspec.Struct):
    url: str


class _Managers(msgspec.Struct):
    activeAlertmanagers: list[_Manager] = []


class ManagersAnswer(msgspec.Struct):
    """/api/v1/alertmanagers."""

    data: _Managers


class Sample(msgspec.Struct):
    """A series of an instant vector: its labels; a time and a value."""

    metric: dict[str, str]
    value: tuple[float, str]

    @property
    def number(self) -> float:
        """The value; NaN where it is no number."""
        try:
            return float(self.value[1])
        except ValueError:
            return math.nan


class _Vector(msgspec.Struct):
    result: list[Sample]


class QueryAnswer(msgspec.Struct):
    """/api/v1/query of a vector."""

    data: _Vector


class _Cluster(msgspec.Struct):
    status: str
    peers: list[msgspec.Raw] = []


class _Config(msgspec.Struct):
    original: str


class ManagerStatus(msgspec.Struct):
    """Alertmanager's /api/v2/status."""

    cluster: _Cluster
    versionInfo: _Version
    config: _Config


class _AlertStatus(msgspec.Struct):
    state: str
    silencedBy: list[str] = []
    inhibitedBy: list[str] = []


class _Receiver(msgspec.Struct):
    name: str


class ReceivedAlert(msgspec.Struct):
    """One of Alertmanager's /api/v2/alerts."""

    labels: dict[str, str]
    updatedAt: Moment
    endsAt: Moment
    status: _AlertStatus
    receivers: list[_Receiver] = []
    fingerprint: str = ""

    @property
    def name(self) -> str:
        """The name of the alert."""
        return self.labels.get("alertname", "")


class SilenceMatcher(msgspec.Struct):
    """A matcher of a silence."""

    name: str
    value: str
    isRegex: bool = False
    isEqual: bool = True

    @property
    def operator(self) -> str:
        """As in a matcher's text."""
        if self.isRegex:
            return "=~" if self.isEqual else "!~"
        return "=" if self.isEqual else "!="


class Silence(msgspec.Struct):
    """One of Alertmanager's /api/v2/silences."""

    matchers: list[SilenceMatcher]
    status: _AlertStatus
    endsAt: Moment
    createdBy: str = ""
    comment: str = ""
    id: str = ""
