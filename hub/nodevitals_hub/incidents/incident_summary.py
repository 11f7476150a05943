"""A month of incidents in figures: how many, how fast, how many were false. Pure.

Times are seconds. A share is None where there is nothing to count.
"""

from __future__ import annotations

import calendar
import statistics
import time
from collections import Counter
from collections.abc import Sequence

import msgspec

from nodevitals_hub.records import Incident
from nodevitals_hub.settings.response import IncidentsSettings, Severity, TargetSettings

MOST_NAMED = 10


class Times(msgspec.Struct, frozen=True, kw_only=True):
    """Times until incidents were acknowledged, or resolved."""

    count: int
    median: float | None = None
    longest: float | None = None
    in_target: float | None = None
    """Share within the target; None without a target."""


class SeveritySummary(msgspec.Struct, frozen=True, kw_only=True):
    """The incidents of one severity. Drills are not counted."""

    severity: Severity
    count: int
    acknowledge: Times
    repair: Times
    marked: int
    """Number of incidents that a person has marked as false alarm or not."""
    false_alarms: int

    @property
    def precision(self) -> float | None:
        """Share of true incidents among the marked ones."""
        return None if not self.marked else 1 - self.false_alarms / self.marked


class Summary(msgspec.Struct, frozen=True, kw_only=True):
    """A month."""

    month: str
    severities: tuple[SeveritySummary, ...]
    repeated: tuple[tuple[str, int], ...]
    """Nodes with more than one incident, the most first."""


def month_of(now: float) -> str:
    """The month of a time, in UTC: `2026-11`."""
    return time.strftime("%Y-%m", time.gmtime(now))


def bounds(month: str) -> tuple[float, float]:
    """The first second of a month, and of the next one. Raises ValueError."""
    start = time.strptime(month, "%Y-%m")
    if not 1971 <= start.tm_year <= 9998:
        raise ValueError("no such month")
    year, number = divmod(start.tm_year * 12 + start.tm_mon, 12)
    after = (year, number + 1, 1, 0, 0, 0)
    return float(calendar.timegm(start)), float(calendar.timegm((*after, 0, 0, 0)))


def summary(month: str, incidents: Sequence[Incident], settings: IncidentsSettings) -> Summary:
    """The figures of a month."""
    real = [incident for incident in incidents if not incident.drill]
    severities: tuple[Severity, ...] = ("critical", "warning", "info")
    nodes = Counter(incident.node for incident in real if incident.node)
    return Summary(
        month=month,
        severities=tuple(
            _of_severity(severity, own, settings.targets.get(severity, TargetSettings()))
            for severity in severities
            if (own := [incident for incident in real if incident.severity == severity])
        ),
        repeated=tuple(pair for pair in nodes.most_common(MOST_NAMED) if pair[1] > 1),
    )


def _of_severity(
    severity: Severity, incidents: Sequence[Incident], target: TargetSettings
) -> SeveritySummary:
    marked = [incident for incident in incidents if incident.false_alarm is not None]
    acknowledged = [
        incident.acknowledged - incident.opened
        for incident in incidents
        if incident.acknowledged is not None
    ]
    resolved = [
        incident.resolved - incident.opened
        for incident in incidents
        if incident.resolved is not None
    ]
    return SeveritySummary(
        severity=severity,
        count=len(incidents),
        acknowledge=_times(acknowledged, target.acknowledge),
        repair=_times(resolved, target.repair),
        marked=len(marked),
        false_alarms=sum(bool(incident.false_alarm) for incident in marked),
    )


def _times(seconds: Sequence[float], target: float | None) -> Times:
    if not seconds:
        return Times(count=0)
    kept = sum(value <= target for value in seconds) if target is not None else None
    return Times(
        count=len(seconds),
        median=statistics.median(seconds),
        longest=max(seconds),
        in_target=None if kept is None else kept / len(seconds),
    )
