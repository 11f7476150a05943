"""A scenario: a fleet, what happens to it, and what people are to be notified of.

`play` runs many at once: each has a cluster of its own, in the same promtool and Alertmanager.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import msgspec

from testbed.alerting import pager, timeline
from testbed.alerting.faults import Node
from testbed.alerting.node import Hardware
from testbed.alerting.outcome import Outcome, Wanted, judge
from testbed.alerting.routes import BY_NIGHT
from testbed.alerting.series import STEP_SECONDS, Series

MINUTE = 60.0
HOUR = 60 * MINUTE
# Waits are divided by at least the first; by more where the notifications of a batch would take
# longer than the second.
SLOWEST_SPEED = 60.0
LONGEST_SECONDS = 40.0
# promtool's limit is 10,000 samples per query: a subquery of 60 steps over this many series.
BATCH_NODES = 150
_PROMTOOLS = threading.Semaphore(2)


class Fleet:
    """The nodes of one cluster, `n001` and so on, and series that are no node's own."""

    def __init__(self, cluster: str) -> None:
        self.cluster = cluster
        self.nodes: list[Node] = []
        self.others: list[Series] = []
        self.sender = pager.Sender()

    def add(self, number: int, hardware: Callable[[int], Hardware] = lambda _: Hardware()) -> None:
        """Add nodes; `hardware` is called with each node's number, from 0."""
        for index in range(len(self.nodes), len(self.nodes) + number):
            self.nodes.append(Node(self.cluster, f"n{index + 1:03}", hardware(index)))

    def other(self, name: str, /, **labels: str) -> Series:
        """Return a new series of something else than an agent."""
        self.others.append(Series(name, cluster=self.cluster, **labels))
        return self.others[-1]

    def prometheus_restarts(self, at: float, until: float) -> None:
        """Prometheus does not run for some time: nothing is scraped, evaluated or sent."""
        away = (pager.Away(at, until),)
        self.sender = msgspec.structs.replace(self.sender, away=away)
        for node in self.nodes:
            node.hidden.append((at, until))
            node.series("up").replace(None, at, until)

    def documents(self, end: float) -> list[dict[str, str]]:
        """Return all series as promtool's input."""
        found = [one.document(end) for one in self.others]
        for node in self.nodes:
            found += node.documents(end)
        return found


class Scenario(msgspec.Struct, frozen=True):
    """`build` adds nodes to an empty fleet and makes the faults.

    Notifications are sent from minute `begin` on: a fault that rules compare with the last hour
    comes after it. `alone`: alerts without a cluster are expected.
    """

    key: str
    happens: str
    wanted: Wanted
    build: Callable[[Fleet], None]
    minutes: float
    begin: float = 0.0
    night: bool = False
    alone: bool = False


class Result(msgspec.Struct):
    """A scenario with what came of it."""

    scenario: Scenario
    outcome: Outcome
    problems: list[str]


class _Prepared(msgspec.Struct):
    """A scenario with its series."""

    scenario: Scenario
    sender: pager.Sender
    nodes: int
    series: list[dict[str, str]]

    @property
    def samples(self) -> float:
        """Number of samples; promtool's time is in proportion to it."""
        return len(self.series) * self.scenario.minutes * MINUTE / STEP_SECONDS

    @property
    def kind(self) -> tuple[object, ...]:
        """What scenarios that are played together have in common."""
        one = self.scenario
        return one.key if one.alone else "", one.night, one.begin

    @classmethod
    def of(cls, scenario: Scenario) -> _Prepared:
        """Make the fleet and its faults."""
        fleet = Fleet(scenario.key)
        scenario.build(fleet)
        series = fleet.documents(scenario.minutes * MINUTE)
        return cls(scenario, fleet.sender, len(fleet.nodes), series)


def samples_of(scenario: Scenario) -> float:
    """Return the number of its samples, to which the time that it takes is in proportion."""
    return _Prepared.of(scenario).samples


def play(scenarios: Sequence[Scenario], folder: Path) -> list[Result]:
    """Play scenarios and return their results in the same order."""
    batches = _batches([_Prepared.of(one) for one in scenarios])
    # What takes promtool longest is first.
    batches.sort(key=lambda batch: -sum(one.samples for one in batch))
    with ThreadPoolExecutor(len(batches) or 1) as pool:
        folders = [folder / f"batch-{number}" for number in range(len(batches))]
        played = list(pool.map(_play_batch, batches, folders))
    results = {result.scenario.key: result for batch in played for result in batch}
    return [results[scenario.key] for scenario in scenarios]


def _batches(prepared: list[_Prepared]) -> list[list[_Prepared]]:
    """Return scenarios that can be played together, those of about the same length first."""
    found: list[list[_Prepared]] = []
    for one in sorted(prepared, key=lambda one: (str(one.kind), one.scenario.minutes)):
        last = found[-1] if found else []
        full = sum(other.nodes for other in last) + one.nodes > BATCH_NODES
        if full or not last or last[0].kind != one.kind:
            found.append([])
        found[-1].append(one)
    return found


def _play_batch(batch: list[_Prepared], folder: Path) -> list[Result]:
    folder.mkdir(parents=True)
    begin = MINUTE * batch[0].scenario.begin
    end = MINUTE * max(one.scenario.minutes for one in batch)
    with _PROMTOOLS:
        series = [document for one in batch for document in one.series]
        # Half as often as Prometheus: it takes promtool half the time.
        alerts = timeline.evaluate(series, end, folder, since=begin, every=2 * STEP_SECONDS)
    speed = max(SLOWEST_SPEED, (end - begin) / LONGEST_SECONDS)
    hours = BY_NIGHT if batch[0].scenario.night else None
    senders = {one.scenario.key: one.sender for one in batch}
    notifications = pager.notify(alerts, end, folder, speed, hours, senders, begin)
    results = []
    for scenario in (one.scenario for one in batch):
        outcome = Outcome.of([one for one in notifications if _belongs(one, scenario)])
        results.append(Result(scenario, outcome, judge(outcome, scenario.wanted)))
    return results


def _belongs(notification: pager.Notification, scenario: Scenario) -> bool:
    """Whether a notification is of this cluster, and before its series end."""
    cluster = notification.alerts[0]["labels"].get("cluster", "")
    own = cluster == scenario.key or (scenario.alone and not cluster)
    return own and notification.at <= scenario.minutes * MINUTE
