"""What a back-test found, in figures: notifications and alerts in, one structure out.

A notification is one message to one integration of a receiver; an episode is one alert from when
it fires until it is resolved.
"""

from __future__ import annotations

import bisect
import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from typing import Optional

import msgspec

from nodevitals.commands.rules.backtest.evaluate import Evaluated
from nodevitals.commands.rules.backtest.notifier import Firing, Held, Notification, Notifier
from nodevitals.commands.rules.backtest.plan import Unevaluated
from nodevitals.commands.rules.backtest.routing import Routing
from nodevitals.commands.rules.backtest.server import Cost

SHIFT_SECONDS = 12 * 3600
MAX_INCIDENTS_PER_SHIFT = 2
"""https://sre.google/sre-book/being-on-call/: at most two incidents in twelve hours."""
_PAGING = ("pagerduty", "opsgenie", "victorops", "pushover")
_DAY_SECONDS = 86400


class ReceiverFigures(msgspec.Struct):
    """Messages to one receiver. `incidents` are those with an alert that was not in the last."""

    receiver: str
    pager: bool
    messages: int = 0
    incidents: int = 0
    repeats: int = 0
    resolved: int = 0
    incidents_per_day: float = 0.0
    incidents_per_week: float = 0.0
    incidents_per_shift: float = 0.0
    worst_shift: int = 0
    shifts_over_limit: int = 0
    shifts: int = 0


class Figures(msgspec.Struct):
    """Of one alert or one node."""

    name: str
    severity: str = ""
    episodes: int = 0
    notified: int = 0
    pages: int = 0
    seconds: float = 0.0
    nodes: int = 0
    alerts: dict[str, int] = {}
    never_notified: dict[str, int] = {}
    """Episodes in no message, by reason."""


class Episode(msgspec.Struct, frozen=True):
    """One alert; `end` None: it still fires."""

    start: float
    end: Optional[float]
    labels: dict[str, str]


class Message(msgspec.Struct, frozen=True):
    """One message that is not a repeat."""

    time: float
    receiver: str
    reason: str
    group: dict[str, str]
    new: tuple[dict[str, str], ...]
    firing: int
    resolved: int


class Report(msgspec.Struct):
    """A back-test."""

    start: float
    end: float
    step_seconds: float
    receivers: list[ReceiverFigures]
    alerts: list[Figures]
    nodes: list[Figures]
    longest: list[Episode]
    messages: list[Message]
    not_evaluated: list[Unevaluated]
    partly_evaluated: list[Unevaluated]
    gaps: list[tuple[float, float]]
    forced_borders: int
    evaluated_seconds: float
    cost: Cost


def pagers_of(routing: Routing, chosen: Sequence[str]) -> set[str]:
    """The receivers that wake a person: chosen ones, or those of paging services, or the first
    one that a critical alert reaches.
    """
    paging = {
        name
        for name, kinds in routing.receivers.items()
        if any(kind.kind in _PAGING for kind in kinds)
    }
    first = routing.root.matching({"severity": "critical"})[0].receiver
    return set(chosen) or paging or {first}


class Reporter:
    """Counts what happens in a span, event by event."""

    def __init__(self, evaluated: Evaluated, routing: Routing, pagers: set[str]) -> None:
        self._evaluated = evaluated
        self._pagers = pagers
        self._span = evaluated.span
        self._labels = [dict(labels) for labels in evaluated.alerts]
        self._times = list(evaluated.alerts.values())
        self._routing = routing
        self._receivers = {
            name: ReceiverFigures(name, name in pagers)
            for name, kinds in routing.receivers.items()
            if kinds
        }
        self._shifts: defaultdict[str, Counter[int]] = defaultdict(Counter)
        self._notified: Counter[tuple[int, int]] = Counter()
        self._pages: Counter[tuple[int, int]] = Counter()
        self._held: dict[tuple[int, int], str] = {}
        self._nodes: defaultdict[str, Counter[str]] = defaultdict(Counter)
        self._messages: list[Message] = []

    def report(self) -> Report:
        """Run the alerts through the routes and count."""
        firings = [
            Firing(index, start, end)
            for index, times in enumerate(self._times)
            for start, end in times
        ]
        for event in Notifier(self._routing, self._labels).run(firings, self._span.end):
            if event.time < self._span.start:
                continue
            if isinstance(event, Held):
                self._held.setdefault(self._episode(event.alert, event.time), self._why(event))
            else:
                self._count(event)
        return self._finished()

    def _count(self, sent: Notification) -> None:
        figures = self._receivers[sent.receiver]
        figures.messages += 1
        figures.incidents += sent.reason == "new"
        figures.repeats += sent.reason == "repeat"
        figures.resolved += sent.reason == "resolved"
        if sent.reason == "new":
            self._shifts[sent.receiver][int((sent.time - self._span.start) // SHIFT_SECONDS)] += 1
            for alert in sent.new:
                self._notified[self._episode(alert, sent.time)] += 1
                if sent.receiver in self._pagers:
                    self._pages[self._episode(alert, sent.time)] += 1
            for node in {self._labels[alert].get("instance", "") for alert in sent.new} - {""}:
                self._nodes[node]["notified"] += 1
                self._nodes[node]["pages"] += sent.receiver in self._pagers
        if sent.reason != "repeat":
            self._messages.append(
                Message(
                    *(sent.time, sent.receiver, sent.reason, dict(sent.group)),
                    tuple(self._labels[alert] for alert in sent.new),
                    *(len(sent.firing), len(sent.resolved)),
                )
            )

    def _episode(self, alert: int, time: float) -> tuple[int, int]:
        return alert, bisect.bisect_right(self._times[alert], (time, math.inf)) - 1

    def _why(self, held: Held) -> str:
        if held.source is None:
            return held.reason
        return f"{held.reason} by {self._labels[held.source].get('alertname', '')}"

    def _finished(self) -> Report:
        span, evaluated = self._span, self._evaluated
        by_alert: dict[tuple[str, str], Figures] = {}
        by_node: dict[str, Figures] = {}
        members: defaultdict[tuple[str, str], set[str]] = defaultdict(set)
        episodes: list[Episode] = []
        for alert, number in self._episodes():
            labels = self._labels[alert]
            start, end = self._times[alert][number]
            node = labels.get("instance", "")
            key = (labels.get("alertname", ""), labels.get("severity", ""))
            kinds = [by_alert.setdefault(key, Figures(*key))]
            if node:
                members[key].add(node)
                kinds.append(by_node.setdefault(node, Figures(node)))
                by_node[node].alerts[key[0]] = by_node[node].alerts.get(key[0], 0) + 1
            for figures in kinds:
                self._add_episode(figures, alert, number)
            episodes.append(Episode(start, None if end >= span.end else end, labels))
        for key, nodes in members.items():
            by_alert[key].nodes = len(nodes)
        for node, figures in by_node.items():
            figures.notified = self._nodes[node]["notified"]
            figures.pages = self._nodes[node]["pages"]
        loud = [one for one in episodes if one.labels.get("severity") not in ("none", "info")]
        return Report(
            *(span.start, span.end, span.step, self._receiver_figures()),
            alerts=_worst_first(by_alert.values()),
            nodes=_worst_first(by_node.values()),
            longest=sorted(loud, key=lambda one: one.start - (one.end or span.end)),
            messages=self._messages,
            not_evaluated=[one for one in evaluated.unevaluated if one.whole],
            partly_evaluated=[one for one in evaluated.unevaluated if not one.whole],
            gaps=list(evaluated.gaps),
            forced_borders=evaluated.forced_borders,
            evaluated_seconds=evaluated.evaluated_seconds,
            cost=evaluated.cost,
        )

    def _episodes(self) -> Iterable[tuple[int, int]]:
        """Those that were active within the span."""
        for alert, times in enumerate(self._times):
            for number, (start, end) in enumerate(times):
                if end > self._span.start and start < self._span.end:
                    yield alert, number

    def _add_episode(self, figures: Figures, alert: int, number: int) -> None:
        start, end = self._times[alert][number]
        key = (alert, number)
        figures.episodes += 1
        figures.notified += self._notified[key]
        figures.pages += self._pages[key]
        figures.seconds += min(end, self._span.end) - max(start, self._span.start)
        if not self._notified[key] and start >= self._span.start:
            why = self._held.get(key, "") or self._unsent(alert)
            figures.never_notified[why] = figures.never_notified.get(why, 0) + 1

    def _unsent(self, alert: int) -> str:
        routes = self._routing.root.matching(self._labels[alert])
        if not any(self._routing.receivers[route.receiver] for route in routes):
            return "no receiver"
        return "resolved within its group_wait"

    def _receiver_figures(self) -> list[ReceiverFigures]:
        span = self._span.end - self._span.start
        shifts = math.ceil(span / SHIFT_SECONDS)
        for name, figures in self._receivers.items():
            counts = self._shifts[name]
            figures.incidents_per_day = figures.incidents / span * _DAY_SECONDS
            figures.incidents_per_week = figures.incidents / span * _DAY_SECONDS * 7
            figures.incidents_per_shift = figures.incidents / span * SHIFT_SECONDS
            figures.worst_shift = max(counts.values(), default=0)
            figures.shifts = shifts
            figures.shifts_over_limit = sum(
                count > MAX_INCIDENTS_PER_SHIFT for count in counts.values()
            )
        return sorted(
            self._receivers.values(), key=lambda one: (not one.pager, -one.incidents, one.receiver)
        )


def _worst_first(figures: Iterable[Figures]) -> list[Figures]:
    return sorted(
        figures, key=lambda one: (-one.pages, -one.notified, -one.episodes, -one.seconds, one.name)
    )
