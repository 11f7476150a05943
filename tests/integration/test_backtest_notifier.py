"""The model of Alertmanager notifies as a real Alertmanager does.

Random alerts come and go under random routes, in both. Events are on whole units of time and every
flush lies half a unit off them, so that no order depends on the speed of the machine. Where the
machine stood still all the same, only what came before is compared: from the first post or message
that was more than a quarter of a unit late on, the real order may be another one.
"""

from __future__ import annotations

import random
import time
from collections import defaultdict
from pathlib import Path
from typing import Any

import msgspec
import requests
import yaml

from nodevitals.commands.rules.backtest.notifier import Firing, Notification, Notifier
from nodevitals.commands.rules.backtest.routing import parse_routing
from nodevitals.commands.rules.backtest.time_intervals import IntervalShape, TimeInterval
from testbed.servers import BINARIES, ServerProcess, show_debian_files
from testbed.webhook import Receiver

UNIT_SECONDS = 1.5
UNITS = 22
# What is later than this may have changed places with something else.
LATE_UNITS = 0.25
MAX_PLAYS = 5
TIMELINES = 28
ALERTS = 6
EPOCH = 60_000_000 * 30.0  # inside the interval `always`
NEVER: list[Any] = [{"months": ["february"], "days_of_month": ["30"]}]
INTERVALS = {"always": [{"years": ["2000:2100"]}], "never": NEVER}


class PlainAlertmanager(ServerProcess):
    """An Alertmanager with this configuration."""

    def __init__(self, folder: Path, config: dict[str, Any]) -> None:
        super().__init__(folder, "alertmanager")
        show_debian_files()
        (self.folder / "alertmanager.yaml").write_text(yaml.safe_dump(config))

    def argv(self) -> list[str]:
        return [
            str(BINARIES / "prometheus-alertmanager"),
            f"--config.file={self.folder / 'alertmanager.yaml'}",
            f"--storage.path={self.folder / 'data'}",
            f"--web.listen-address=127.0.0.1:{self.port}",
            "--cluster.listen-address=",
        ]

    def post(self, alerts: list[dict[str, Any]]) -> None:
        requests.post(f"{self.url}/api/v2/alerts", json=alerts, timeout=60).raise_for_status()


def units(number: float) -> str:
    return f"{round(number * UNIT_SECONDS * 1000)}ms"


class Timeline:
    """Random routes, inhibition and alerts, apart from those of other timelines by a label."""

    def __init__(self, number: int, webhook: str) -> None:
        rng = random.Random(number)
        name = f"t{number}"
        self.matcher = f'timeline="{name}"'
        self.receivers: list[dict[str, Any]] = []
        self._rng, self._name, self._webhook = rng, name, webhook
        self.route = {**self._route(3), "matchers": [self.matcher]}
        self.inhibitions = [self._inhibition() for _ in range(rng.randrange(3))]
        self.labels = [
            {"timeline": name, "alert": str(index), **self._some_labels()}
            for index in range(ALERTS)
        ]
        self.firings = [one for index in range(ALERTS) for one in self._firings(index)]

    def _some_labels(self) -> dict[str, str]:
        return {key: self._rng.choice("xy") for key in "abc" if self._rng.random() < 0.8}

    def _matcher(self) -> str:
        label, operator = self._rng.choice("abc"), self._rng.choice(("=", "!=", "=~", "!~"))
        value = self._rng.choice(("x", "y", "x|y", ".+") if "~" in operator else ("x", "y", ""))
        return f'{label}{operator}"{value}"'

    def _route(self, depth: int) -> dict[str, Any]:
        rng = self._rng
        receiver = f"{self._name}-{len(self.receivers)}"
        hook = {"url": f"{self._webhook}/{receiver}", "send_resolved": rng.random() < 0.5}
        self.receivers.append({"name": receiver, "webhook_configs": [hook]})
        found: dict[str, Any] = {
            "receiver": receiver,
            "group_by": rng.choice((["..."], [], ["a"], ["a", "b"])),
            "group_wait": units(rng.choice((0.5, 1.5, 3.5))),
            "group_interval": units(rng.choice((1, 2, 3))),
            "repeat_interval": units(rng.choice((2.5, 4.5, 1000))),
            "continue": rng.random() < 0.5,
        }
        if depth < 3:
            found["matchers"] = [self._matcher()]
            for kind in ("mute", "active"):
                if rng.random() < 0.15:
                    found[f"{kind}_time_intervals"] = [rng.choice(("always", "never"))]
        if depth:
            found["routes"] = [self._route(depth - 1) for _ in range(rng.randrange(3))]
        return found

    def _inhibition(self) -> dict[str, Any]:
        return {
            "source_matchers": [self.matcher, self._matcher()],
            "target_matchers": [self.matcher, self._matcher()],
            "equal": self._rng.choice(([], ["a"], ["b", "c"])),
        }

    def _firings(self, index: int) -> list[tuple[int, int, int]]:
        """Alert, first unit, last unit."""
        count = 2 * self._rng.randrange(4)
        times = sorted(self._rng.sample(range(UNITS), count))
        return [(index, *pair) for pair in zip(times[::2], times[1::2], strict=True)]


def configuration(timelines: list[Timeline], webhook: str) -> dict[str, Any]:
    hook = {"name": "rest", "webhook_configs": [{"url": f"{webhook}/rest"}]}
    return {
        "route": {"receiver": "rest", "routes": [one.route for one in timelines]},
        "receivers": [hook, *(found for one in timelines for found in one.receivers)],
        "inhibit_rules": [rule for one in timelines for rule in one.inhibitions],
        "time_intervals": [
            {"name": name, "time_intervals": value} for name, value in INTERVALS.items()
        ],
    }


def play(alertmanager: PlainAlertmanager, timelines: list[Timeline], start: float) -> list[int]:
    """Post every alert at its time: `start` is the time of unit 0. The units that were late."""
    late = []
    for unit in range(UNITS):
        time.sleep(max(0.0, start + unit * UNIT_SECONDS - time.time()))
        posts = []
        for timeline in timelines:
            for index, first, last in timeline.firings:
                if unit in (first, last):
                    end = start + last * UNIT_SECONDS if unit == last else start + 3600
                    times = {"startsAt": stamp(start + first * UNIT_SECONDS), "endsAt": stamp(end)}
                    posts.append({"labels": timeline.labels[index], **times})
        if posts:
            alertmanager.post(posts)
        if time.time() > start + (unit + LATE_UNITS) * UNIT_SECONDS:
            late.append(unit)
    return late


def stamp(seconds: float) -> str:
    whole = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(seconds))
    return f"{whole}.{int(seconds % 1 * 1000):03}Z"


def received(webhook: Receiver, start: float, now: tuple[float, float]) -> dict[str, list[Any]]:
    """By receiver: each message's time in units, and its alerts by status."""
    wall, monotonic = now
    found: dict[str, list[Any]] = defaultdict(list)
    arrivals: dict[int, float] = {}
    for moment, alert in webhook.alerts:
        arrivals.setdefault(id(alert["labels"]), moment)
    for receiver, body in webhook.messages:
        moment = arrivals[id(body["alerts"][0]["labels"])] - monotonic + wall - start
        by_status = {
            status: tuple(
                sorted(int(a["labels"]["alert"]) for a in body["alerts"] if a["status"] == status)
            )
            for status in ("firing", "resolved")
        }
        found[receiver].append((moment / UNIT_SECONDS, by_status["firing"], by_status["resolved"]))
    return found


def undisturbed(late: list[int], actual: dict[str, list[Any]]) -> int:
    """The number of units, from the first, in which no post and no message was late. What is late
    may have stood still since the unit before it.
    """
    moments = (moment for messages in actual.values() for moment, *_ in messages)
    off = [moment for moment in moments if abs(moment % 1 - 0.5) > LATE_UNITS]
    return int(min([*late, *off, UNITS])) - 1


def test_model_sends_what_alertmanager_sends(tmp_path: Path) -> None:
    """Once more where the machine stood still too early: no difference is accepted in any play."""
    for number in range(MAX_PLAYS):
        compared, differences = played(tmp_path / str(number))
        assert not differences, "\n".join(differences)
        if compared > 200:  # of 330
            return
    raise AssertionError(f"no play of {MAX_PLAYS} went on for long enough to compare 200 messages")


def played(folder: Path) -> tuple[int, list[str]]:
    """Play all timelines in both: the number of messages compared, and what differs."""
    with Receiver() as webhook:
        timelines = [Timeline(number, webhook.url) for number in range(TIMELINES)]
        config = configuration(timelines, webhook.url)
        with PlainAlertmanager(folder, config) as alertmanager:
            asked = time.time()
            requests.post(f"{alertmanager.url}/-/reload", timeout=60).raise_for_status()
            reloaded = time.time()
            # Empty groups are removed every 30 s after a reload: in the middle between two events.
            start = reloaded + 30 % UNIT_SECONDS + UNIT_SECONDS / 4
            late = play(alertmanager, timelines, start)
            if reloaded - asked > LATE_UNITS * UNIT_SECONDS:
                late.append(0)  # it is not known when the 30 s began
            time.sleep(UNIT_SECONDS * 0.25)
            now = (time.time(), time.monotonic())
            actual = received(webhook, start, now)
    return compare(timelines, config, actual, undisturbed(late, actual))


def compare(
    timelines: list[Timeline], config: dict[str, Any], actual: dict[str, list[Any]], units: int
) -> tuple[int, list[str]]:
    """Compare so many units: the number of messages, and what differs."""
    # The model's clock begins at the reload, so that its maintenance is at 30 s, too.
    offset = EPOCH + UNIT_SECONDS / 4
    routing = parse_routing(yaml.safe_dump(config).encode())
    differences, compared = [], 0
    for timeline in timelines:
        expected = modelled(timeline, routing, offset)
        for receiver in (one["name"] for one in timeline.receivers):
            real = in_units(units, actual.get(receiver, []))
            model = in_units(units, expected.get(receiver, []))
            compared += len(model)
            if not same(real, model):
                differences.append(f"{receiver}:\n  real  {real}\n  model {model}")
    return compared, differences


def modelled(timeline: Timeline, routing: Any, offset: float) -> dict[str, list[Any]]:
    firings = [
        Firing(index, offset + first * UNIT_SECONDS, offset + last * UNIT_SECONDS)
        for index, first, last in timeline.firings
    ]
    found: dict[str, list[Any]] = defaultdict(list)
    until = offset + (UNITS - 0.9) * UNIT_SECONDS
    for event in Notifier(routing, timeline.labels).run(firings, until):
        if isinstance(event, Notification):
            moment = (event.time - offset) / UNIT_SECONDS
            found[event.receiver].append((moment, event.firing, event.resolved))
    return found


def in_units(number: int, messages: list[Any]) -> list[Any]:
    """Those of the first units."""
    return [one for one in messages if one[0] < number]


def same(real: list[Any], model: list[Any]) -> bool:
    """Whether both have the same messages in the same unit; messages of a unit have no order."""

    def rounded(messages: list[Any]) -> list[Any]:
        return sorted((int(moment), firing, resolved) for moment, firing, resolved in messages)

    return rounded(real) == rounded(model)


def test_time_intervals_are_alertmanagers(tmp_path: Path) -> None:
    """Random intervals, each as the active time of a route: who is notified now?"""
    rng = random.Random(7)
    shapes = [random_interval(rng) for _ in range(150)]
    with Receiver() as webhook:
        names = [f"i{number}" for number in range(len(shapes))]
        config = {
            "route": {
                "receiver": "rest",
                "group_by": ["..."],
                "group_wait": "100ms",
                "routes": [
                    {"receiver": name, "active_time_intervals": [name], "continue": True}
                    for name in names
                ],
            },
            "receivers": [
                {"name": name, "webhook_configs": [{"url": f"{webhook.url}/{name}"}]}
                for name in (*names, "rest")
            ],
            "time_intervals": [
                {"name": name, "time_intervals": [shape]}
                for name, shape in zip(names, shapes, strict=True)
            ],
        }
        with PlainAlertmanager(tmp_path, config) as alertmanager:
            before = expected_active(shapes)
            alertmanager.post([{"labels": {"alertname": "Any"}}])
            deadline = time.monotonic() + 120
            while {name for name, _ in webhook.messages} != before and time.monotonic() < deadline:
                time.sleep(0.2)
                # A minute may have begun since.
                before = expected_active(shapes) | (before & {n for n, _ in webhook.messages})
            time.sleep(1)
    assert {name for name, _ in webhook.messages} == before
    assert 20 < len(before) < len(shapes) - 20


def expected_active(shapes: list[dict[str, Any]]) -> set[str]:
    now = time.time()
    return {
        f"i{number}"
        for number, shape in enumerate(shapes)
        if TimeInterval(msgspec.convert(shape, IntervalShape)).contains(now)
    }


def random_interval(rng: random.Random) -> dict[str, Any]:
    """Return an interval that has a good chance to contain the current time."""
    zones = ("UTC", "Asia/Shanghai", "America/New_York", "Australia/Lord_Howe", "Asia/Kathmandu")
    shape: dict[str, Any] = {"location": rng.choice(zones)}
    days = ("sunday", "monday", "tuesday", "wednesday", "thursday", "friday", "saturday")
    if rng.random() < 0.5:
        first = rng.randrange(1, 24)
        times = [{"start_time": "00:00", "end_time": f"{first:02}:30"}]
        times.append({"start_time": f"{first:02}:45", "end_time": "24:00"})
        shape["times"] = rng.sample(times, rng.choice((1, 2)))
    if rng.random() < 0.4:
        first, last = sorted(rng.choices(range(7), k=2))
        shape["weekdays"] = [f"{days[first]}:{days[last]}", rng.choice(days)]
    if rng.random() < 0.4:
        first, last = sorted(rng.choices(range(1, 32), k=2))
        shape["days_of_month"] = rng.choice(([f"{first}:{last}"], ["-12:-1"], ["5:-5"], ["-1"]))
    if rng.random() < 0.3:
        shape["months"] = [rng.choice(("january:october", "2:12", "november", "6:9"))]
    if rng.random() < 0.2:
        shape["years"] = [rng.choice(("2020:2060", "1999"))]
    return shape
