"""What Alertmanager would have sent: alerts over time in, notifications out.

A model of the dispatcher, the inhibitor, the time intervals and the notification log of
Alertmanager 0.25, which cannot be driven faster than its clock. A test compares it with the real
one. Not modelled: silences, failed deliveries, clusters, alerts that Prometheus sends again after
they are resolved, and templates.
"""

from __future__ import annotations

import heapq
import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Optional

import msgspec

from nodevitals.commands.rules.backtest.inhibitor import Inhibitor
from nodevitals.commands.rules.backtest.routing import Integration, Route, Routing

MAINTENANCE_SECONDS = 30.0
"""Alertmanager removes empty groups this often."""
_LOG_RETENTION_SECONDS = 120 * 3600.0


class Firing(msgspec.Struct, frozen=True):
    """An alert (an index) that fires from `start` to before `end`; seconds since the epoch."""

    alert: int
    start: float
    end: float


class Notification(msgspec.Struct, frozen=True):
    """One message; alerts are indices. `new` are those firing that the last one did not have."""

    time: float
    receiver: str
    integration: int
    group: tuple[tuple[str, str], ...]
    reason: str
    """`new`, `resolved` or `repeat`."""
    firing: tuple[int, ...]
    resolved: tuple[int, ...]
    new: tuple[int, ...]


class Held(msgspec.Struct, frozen=True):
    """A firing alert that a flush of its group did not send, and why; `source` inhibits it."""

    alert: int
    receiver: str
    time: float
    reason: str
    source: Optional[int] = None


class _Logged(msgspec.Struct):
    time: float
    firing: frozenset[int]
    resolved: frozenset[int]


class _Group(msgspec.Struct, eq=False):
    route: Route
    labels: tuple[tuple[str, str], ...]
    last_tick: float
    """The last flush, or the one before the first: the next is a `group_interval` later."""
    members: set[int]
    scheduled: bool = False
    emptied: float = math.inf
    settled: tuple[object, ...] = ()
    """What the last flush saw; the same again sends nothing before `due`."""
    due: float = -math.inf
    log: dict[int, _Logged] = {}


class Notifier:
    """Runs alerts through a configuration."""

    def __init__(self, routing: Routing, alerts: Sequence[Mapping[str, str]]) -> None:
        """`alerts` are the labels of every alert; elsewhere an alert is its index in them."""
        self._routing = routing
        self._alerts = alerts
        self._inhibitor = Inhibitor(routing.inhibitions, list(alerts))
        self._routes = [routing.root.matching(labels) for labels in alerts]
        self._firing: set[int] = set()
        self._groups: dict[tuple[str, tuple[tuple[str, str], ...]], _Group] = {}
        self._logs: dict[tuple[str, tuple[tuple[str, str], ...]], dict[int, _Logged]] = {}
        self._ticks: list[tuple[float, int, _Group]] = []
        self._order = itertools.count()
        self._minutes: dict[tuple[str, int], bool] = {}

    def run(self, firings: Sequence[Firing], until: float) -> Iterator[Notification | Held]:
        """Everything that happens before a time, in its order."""
        events = [(one.start, 1, one.alert) for one in firings]
        events += [(one.end, 0, one.alert) for one in firings if one.end < math.inf]
        for time, firing, alert in sorted(events):
            if time >= until:
                break
            yield from self._flush_before(time)
            self._update(time, alert, bool(firing))
        yield from self._flush_before(until)

    def _update(self, time: float, alert: int, firing: bool) -> None:
        (self._firing.add if firing else self._firing.discard)(alert)
        self._inhibitor.update(alert, firing)
        for route in self._routes[alert]:
            group = self._group(time, route, route.group_labels(self._alerts[alert]))
            group.members.add(alert)
            group.settled = ()
            if not group.scheduled:
                passed = math.ceil((time - group.last_tick) / route.group_interval)
                self._schedule(group, group.last_tick + max(passed, 1) * route.group_interval)

    def _group(self, time: float, route: Route, labels: tuple[tuple[str, str], ...]) -> _Group:
        key = (route.path, labels)
        group = self._groups.get(key)
        removal = (
            math.ceil(group.emptied / MAINTENANCE_SECONDS) * MAINTENANCE_SECONDS
            if group and not group.members and group.emptied < math.inf
            else math.inf
        )
        if group is None or removal <= time:
            log = self._logs.setdefault(key, {})
            group = self._groups[key] = _Group(route, labels, time, set(), log=log)
            self._schedule(group, time + route.group_wait)
        return group

    def _schedule(self, group: _Group, time: float) -> None:
        group.scheduled = True
        heapq.heappush(self._ticks, (time, next(self._order), group))

    def _flush_before(self, time: float) -> Iterator[Notification | Held]:
        while self._ticks and self._ticks[0][0] < time:
            now, _, group = heapq.heappop(self._ticks)
            yield from self._flush(now, group)
            group.last_tick, group.scheduled = now, False
            if group.members:
                self._schedule(group, now + group.route.group_interval)
            else:
                group.emptied = now

    def _flush(self, now: float, group: _Group) -> Iterator[Notification | Held]:
        closed = self._closed(now, group.route)
        seen = (closed, self._inhibitor.changes)
        if seen == group.settled and now <= group.due:
            return
        group.settled, group.due = seen, math.inf
        sent = []
        for alert in sorted(group.members):
            source = self._inhibitor.muted_by(alert)
            if source is None:
                sent.append(alert)
            if alert in self._firing and (source is not None or closed):
                reason = closed if source is None else "inhibited"
                yield Held(alert, group.route.receiver, now, reason, source)
        if sent and not closed:
            for number, kind in enumerate(self._routing.receivers[group.route.receiver]):
                yield from self._notify(now, group, number, kind, sent)
        group.members &= self._firing

    def _closed(self, now: float, route: Route) -> str:
        """The reason why the route's time intervals send nothing now; '' where they do."""
        if route.active and not any(self._inside(name, now) for name in route.active):
            return f"outside {', '.join(route.active)}"
        inside = [name for name in route.mute if self._inside(name, now)]
        return f"within {', '.join(inside)}" if inside else ""

    def _inside(self, name: str, now: float) -> bool:
        key = (name, int(now // 60))
        if key not in self._minutes:
            intervals = self._routing.intervals[name]
            self._minutes[key] = any(interval.contains(now) for interval in intervals)
        return self._minutes[key]

    def _notify(
        self, now: float, group: _Group, number: int, kind: Integration, alerts: list[int]
    ) -> Iterator[Notification]:
        """Send to one integration unless its log says that there is nothing new."""
        firing = frozenset(alert for alert in alerts if alert in self._firing)
        resolved = frozenset(alerts) - firing
        repeat = group.route.repeat_interval
        logged = group.log.get(number)
        if logged and now > logged.time + min(2 * repeat, _LOG_RETENTION_SECONDS):
            logged = None
        reason = _reason(logged, firing, resolved, kind.send_resolved, now - repeat)
        if reason:
            group.log[number] = _Logged(now, firing, resolved)
            if firing or kind.send_resolved:
                new = firing - logged.firing if logged else firing
                reported = resolved if kind.send_resolved else ()
                yield Notification(
                    *(now, group.route.receiver, number, group.labels, reason),
                    *(tuple(sorted(one)) for one in (firing, reported, new)),
                )
        if firing:
            group.due = min(group.due, group.log[number].time + repeat)


def _reason(
    logged: _Logged | None,
    firing: frozenset[int],
    resolved: frozenset[int],
    send_resolved: bool,
    repeat_before: float,
) -> str:
    """Why a group is notified now, by what was sent last; '' where it is not."""
    if logged is None or not firing <= logged.firing:
        return "new" if firing else ""
    if not firing:
        return "resolved" if logged.firing else ""
    if send_resolved and not resolved <= logged.resolved:
        return "resolved"
    return "repeat" if logged.time < repeat_before else ""
