"""A scenario: a fleet, what happens to it, and what people are to be notified of.

`play` runs many at once: each has a cluster of its own, in the same promtool and Alertmanager.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import msgspec

from testbed.alerting import pager, timeline
from testbed.alerting.faults import Node
from testbed.alerting.node import Hardware
from testbed.alerting.outcome import Outcome, Wanted, judge
from testbed.alerting.series import Series

MINUTE = 60.0
# Waits are divided by at least this, so that no batch takes longer than about a minute.
SLOWEST_SPEED = 60.0
LONGEST_SECONDS = 60.0
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

    def other(self, name: str, **labels: str) -> Series:
        """Return a new series of something else than an agent."""
        self.others.append(Series(name, cluster=self.cluster, **labels))
        return self.others[-1]

    def prometheus_restarts(self, at: float, until: float) -> None:
        """Prometheus does not run for some time: nothing is scraped, evaluated or sent."""
        self.sender = msgspec.structs.replace(self.sender, away=(pager.Away(at, until),))
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


def play(scenarios: Sequence[Scenario], folder: Path) -> list[Result]:
    """Play scenarios and return their results in the same order."""
    batches = list(_batches(scenarios))
    with ThreadPoolExecutor(len(batches) or 1) as pool:
        folders = [folder / f"batch-{number}" for number in range(len(batches))]
        played = list(pool.map(_play_batch, batches, folders))
    results = {result.scenario.key: result for batch in played for result in batch}
    return [results[scenario.key] for scenario in scenarios]


def _batches(scenarios: Iterable[Scenario]) -> Iterable[list[Scenario]]:
    """Yield scenarios that can run together: same hours, about the same length."""
    found: dict[tuple[str, bool, bool, float], list[Scenario]] = {}
    for one in scenarios:
        key = one.key if one.alone else ""
        found.setdefault((key, one.night, one.minutes - one.begin > 60, one.begin), []).append(one)
    return found.values()


def _play_batch(scenarios: list[Scenario], folder: Path) -> list[Result]:
    folder.mkdir(parents=True)
    seconds = MINUTE * max(one.minutes for one in scenarios)
    fleets = []
    for one in scenarios:
        fleets.append(Fleet(one.key))
        one.build(fleets[-1])
    begin = MINUTE * scenarios[0].begin
    with _PROMTOOLS:
        series = [one for fleet in fleets for one in fleet.documents(seconds)]
        alerts = timeline.evaluate(series, seconds, folder, since=begin)
    speed = max(SLOWEST_SPEED, (seconds - begin) / LONGEST_SECONDS)
    hours = pager.BY_NIGHT if scenarios[0].night else None
    senders = {fleet.cluster: fleet.sender for fleet in fleets}
    notifications = pager.notify(alerts, seconds, folder, speed, hours, senders, begin)
    results = []
    for scenario in scenarios:
        own = [one for one in notifications if _belongs(one, scenario)]
        outcome = Outcome.of(own)
        results.append(Result(scenario, outcome, judge(outcome, scenario.wanted)))
    return results


def _belongs(notification: pager.Notification, scenario: Scenario) -> bool:
    cluster = notification.alerts[0]["labels"].get("cluster", "")
    return cluster == scenario.key or (scenario.alone and not cluster)
