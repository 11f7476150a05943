"""The last message about a group says what holds: over an outage of the far side, and again."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import requests

from testbed.hub import HubProcess
from testbed.node import PATIENCE_SECONDS, wait_until
from testbed.notifykills import FarSide, hub_with_channels, message, send


class Site:
    """A hub with one channel, and what that got."""

    def __init__(self, hub: HubProcess, far: FarSide) -> None:
        self.hub, self.far = hub, far
        self.url = f"http://127.0.0.1:{hub.port}"

    def listed(self) -> dict[str, list[dict[str, Any]]]:
        """The notifications by state."""
        found: dict[str, list[dict[str, Any]]] = requests.get(
            f"{self.url}/api/v1/deliveries", timeout=PATIENCE_SECONDS
        ).json()
        return found

    def counts(self) -> dict[str, float]:
        """Notifications by outcome."""
        text = requests.get(f"{self.url}/metrics", timeout=PATIENCE_SECONDS).text
        name = "nodevitals_hub_notifications_total"
        found = re.findall(rf'{name}{{channel="first",outcome="(\w+)"}} (\S+)', text)
        return {outcome: float(number) for outcome, number in found}

    def say(self, body: dict[str, Any], new: bool = True) -> None:
        """Send a message, and wait until it is a notification."""
        before = sum(map(len, self.listed().values()))
        assert send(self.hub, body).json() == {"new": new}
        wait_until(lambda: sum(map(len, self.listed().values())) == before + new, 20, "it")

    def outage(self) -> None:
        """The far side refuses until `recover`, and has refused once."""
        self.far.status = 503
        wait_until(lambda: self.far.refused, 20, "an attempt")

    def recover(self) -> None:
        """The far side takes messages, and has taken all that waited."""
        self.far.status = 200
        self.hub.kill()  # its channel pauses for seconds
        with closing(sqlite3.connect(self.hub.state / "respond.db")) as connection, connection:
            connection.execute("UPDATE deliveries SET next_try = 0 WHERE state = 'waiting'")
        self.hub.start()
        wait_until(lambda: not self.listed().get("waiting"), 30, "the end of what waits")

    def is_over(self, wanted: bool) -> bool:
        """Whether the one incident is resolved, or not, as wanted."""
        answer = requests.get(f"{self.url}/api/v1/incidents", timeout=PATIENCE_SECONDS).json()
        return ["resolved" in one for one in answer["incidents"]] == [wanted]

    def titles(self) -> list[str]:
        """What the channel got, without the cluster."""
        return [title.replace("] test:", "]") for _, title, _ in self.far.taken]


@pytest.fixture
def found(tmp_path: Path) -> Iterator[Site]:
    with FarSide() as far, hub_with_channels(tmp_path, far) as hub:
        yield Site(hub, far)


def group(*alerts: tuple[int, str]) -> dict[str, Any]:
    """A message of one group: numbers and states of its alerts."""
    body = message(0)
    body["alerts"] = [message(number, status)["alerts"][0] for number, status in alerts]
    for one in body["alerts"]:
        one["labels"]["instance"] = f"gpu-{one['fingerprint'][-1]}"
    return body


def test_what_was_resolved_during_an_outage_does_not_fire_after_it(found: Site) -> None:
    """One message says both: since when, and until when. What it replaces is neither sent nor
    lost, and is shown.
    """
    found.far.status = 503
    found.say(message(1))
    found.outage()
    found.say(message(1, "resolved"))
    wait_until(lambda: found.counts().get("superseded") == 1, 30, "its count")
    [older] = found.listed()["superseded"]
    assert older["title"].startswith("[FIRING 1]")
    assert older["error"] == "a newer one of its group took its place"
    assert "FIRING" in requests.get(f"{found.url}/notifications", timeout=60).text
    found.recover()
    assert found.titles() == ["[RESOLVED 1] fault 1 of the test"]
    assert (
        "Firing since: 2026-11-22 08:00:00 UTC, until 09:00:00, lasted 1:00:00"
        in found.far.taken[0][2]
    )
    assert found.counts()["sent"] == 1


def test_a_newer_message_has_what_an_undelivered_one_had_alone(found: Site) -> None:
    """Alertmanager sends an end once, and a silenced alert or one of another Alertmanager is in no
    later message.
    """
    found.say(group((1, "firing"), (2, "firing")))
    wait_until(lambda: len(found.far.taken) == 1, 20, "the first")
    found.far.status = 503
    found.say(group((1, "resolved"), (2, "firing"), (3, "firing")))
    found.outage()
    found.say(group((2, "firing"), (4, "firing")))
    found.say(group((2, "resolved"), (4, "firing")))
    found.recover()
    [_, (_, title, text)] = found.far.taken
    assert title.startswith("[FIRING 2, RESOLVED 2]")
    for number in (1, 2, 3, 4):
        assert f"gpu-{number}" in text
    assert found.listed()["superseded"][0]["id"] != found.listed()["sent"][0]["id"]


def test_an_attempt_that_fails_while_a_newer_message_comes_is_not_repeated(found: Site) -> None:
    found.far.hold.clear()
    found.say(message(1))
    wait_until(lambda: found.far.pending, 20, "an attempt")
    found.say(message(1, "resolved"))
    found.far.status = 503
    found.far.hold.set()
    wait_until(lambda: found.far.refused, 20, "its failure")
    found.recover()
    assert found.titles() == ["[RESOLVED 1] fault 1 of the test"]


def test_the_order_of_other_groups_stays(found: Site) -> None:
    found.far.status = 503
    for number in (1, 2, 3):
        found.say(message(number))
    found.outage()
    found.say(message(2, "resolved"))
    found.recover()
    expected = ["[FIRING 1] fault 1", "[FIRING 1] fault 3", "[RESOLVED 1] fault 2"]
    assert sorted(found.titles()) == [f"{one} of the test" for one in expected]


def test_what_says_the_same_as_the_last_message_is_no_news(found: Site) -> None:
    """It fired, was resolved and fires again within an outage: the last that people read holds."""
    found.say(message(1))
    wait_until(lambda: found.listed()["sent"], 20, "the first")
    found.far.status = 503
    found.say(message(1, "resolved"))
    found.outage()
    found.say(message(1))
    found.recover()
    assert found.titles() == ["[FIRING 1] fault 1 of the test"]
    assert len(found.listed()["superseded"]) == 2
    found.say(message(1, "resolved"))
    wait_until(lambda: len(found.far.taken) == 2, 20, "the end")


def test_a_fault_that_fires_again_with_the_same_start_is_notified_again(found: Site) -> None:
    """As after an outage of Prometheus: its alerts end in Alertmanager, and come again as they
    were. The same message of a second Alertmanager is a repetition each time.
    """
    expected = []
    for status in ("firing", "resolved", "firing", "resolved"):
        found.say(message(1, status))
        found.say(message(1, status), new=False)
        expected.append(f"[{status.upper()} 1] fault 1 of the test")
        wait_until(lambda: len(found.far.taken) == len(expected), 20, status)
        wait_until(partial(found.is_over, status == "resolved"), 20, "its incident")
    assert found.titles() == expected


def test_a_watchdog_that_came_back_during_an_outage_is_not_missed_after_it(
    tmp_path: Path,
) -> None:
    watchdog = {"channels": ["first"], "after": "5s"}
    with FarSide() as far, hub_with_channels(tmp_path, far, watchdog=watchdog) as hub:
        site, beat = Site(hub, far), message(1, alertname="Watchdog", severity="none")
        far.status = 503
        site.outage()
        assert send(hub, beat).ok
        wait_until(
            lambda: any("again" in one["title"] for one in site.listed()["waiting"]), 30, "its end"
        )
        hub.kill()
        hub.config.write_text(hub.config.read_text().replace("after: 5s", "after: 1h"))
        hub.start()
        site.recover()
        assert [title.partition("] ")[2] for _, title, _ in far.taken] == [
            "test: alerts arrive again"
        ]
