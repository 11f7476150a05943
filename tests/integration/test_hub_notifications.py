"""Alertmanager's messages become notifications: once, in order, and none is lost."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest
import requests

from testbed.node import PATIENCE_SECONDS, wait_until
from testbed.notifykills import (
    FarSide,
    hub_with_channels,
    kill_while_notifying,
    message,
    send,
    sends_something,
)


@pytest.fixture
def far() -> Iterator[FarSide]:
    with FarSide() as found:
        yield found


def metrics(port: int) -> str:
    return requests.get(f"http://127.0.0.1:{port}/metrics", timeout=60).text


def test_a_message_is_delivered_once_however_often_it_comes(tmp_path: Path, far: FarSide) -> None:
    with hub_with_channels(tmp_path, far) as hub:
        assert send(hub, message(1)).json() == {"new": True}
        assert send(hub, message(1)).json() == {"new": False}
        wait_until(lambda: not sends_something(hub), 20, "a note of what was sent")
        hub.kill()
        hub.start()
        assert send(hub, message(1)).json() == {"new": False}
        assert send(hub, message(1, "resolved")).json() == {"new": True}
        wait_until(lambda: len(far.taken) == 2, 20, "two notifications")
        [(_, first, text), (_, last, _)] = far.taken
        assert "test" in first, "the cluster is in every title"
        assert "fault 1 of the test" in text
        assert "Drain the node." in text
        assert first != last
        wait_until(
            lambda: 'notifications_total{channel="first",outcome="sent"}' in metrics(hub.port),
            10,
            "its count",
        )


def test_what_the_far_side_refuses_is_sent_later_and_shown_meanwhile(
    tmp_path: Path, far: FarSide
) -> None:
    far.status = 503
    with hub_with_channels(tmp_path, far) as hub:
        for number in (1, 2):
            send(hub, message(number))
        wait_until(lambda: far.refused >= 1, 20, "an attempt")
        wait_until(
            lambda: 'nodevitals_hub_notifications_waiting{channel="first"} 2' in metrics(hub.port),
            20,
            "both in the metrics",
        )
        url = f"http://127.0.0.1:{hub.port}"
        wait_until(
            lambda: any(
                one.get("error")
                for one in requests.get(f"{url}/api/v1/deliveries", timeout=60).json()["waiting"]
            ),
            20,
            "the error",
        )
        page = requests.get(f"{url}/notifications", timeout=60).text
        assert "fault 1 of the test" in page
        assert "503" in page
        assert str(far.port) not in page, "an address may hold a secret"
        far.status = 200
        wait_until(lambda: sorted(far.numbers("first")) == [1, 2], 40, "both")


def test_more_than_the_limit_goes_out_as_one_message(tmp_path: Path, far: FarSide) -> None:
    """None is left out, and the limit holds after a restart as well."""
    far.status = 503
    with hub_with_channels(tmp_path, far, per_minute=2) as hub:
        for number in range(1, 13):
            send(hub, message(number))
        waiting = 'nodevitals_hub_notifications_waiting{channel="first"} 12'
        wait_until(lambda: waiting in metrics(hub.port), 20, "all of them behind it")
        wait_until(lambda: far.refused >= 1, 20, "an attempt")
        hub.kill()
        far.status = 200
        hub.start()
        wait_until(lambda: len(far.numbers("first")) == 12, 60, "all twelve")
        assert len(far.taken) <= 2


def test_a_message_that_cannot_be_kept_is_refused(tmp_path: Path, far: FarSide) -> None:
    far.status = 503
    with hub_with_channels(tmp_path, far, max_queued=10) as hub:
        statuses = [send(hub, message(number)).status_code for number in range(16)]
        assert 503 in statuses
        refused = send(hub, message(99))
        assert refused.status_code == 503
        assert "max_queued" in refused.json()["error"]


@pytest.mark.parametrize(
    "body",
    [
        {},
        [],
        {"version": "4"},
        {**message(1), "version": "3"},
        {**message(1), "alerts": "all"},
        {**message(1), "alerts": [{"status": "odd"}]},
        {**message(1), "groupKey": "x" * 100_000},
        {**message(1), "alerts": [{**message(1)["alerts"][0], "startsAt": "x" * 1_000_000}]},
        {**message(1), "alerts": [{**message(1)["alerts"][0], "generatorURL": "x" * 1_000_000}]},
    ],
)
def test_what_is_no_message_is_refused_in_one_line(
    tmp_path: Path, far: FarSide, body: object
) -> None:
    with hub_with_channels(tmp_path, far) as hub:
        answer = send(hub, body)
        assert answer.status_code == 400
        assert "\n" not in answer.json()["error"]


@pytest.mark.proof("kills")
def test_kills_lose_no_notification(tmp_path: Path) -> None:
    """The long form is `make proof PART=notifications`."""
    outcome = kill_while_notifying(tmp_path, messages=20, kills=2, seed=19)
    assert outcome.lost == 0
    assert outcome.duplicates <= outcome.kills, "one message may be under way at a kill"
    with sqlite3.connect(tmp_path / "hub/respond.db") as connection:
        assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)
        assert connection.execute("SELECT count(*) FROM inbox WHERE reader = 'notify'").fetchone()


def test_a_hub_without_channels_has_no_such_file(tmp_path: Path, far: FarSide) -> None:
    with hub_with_channels(tmp_path, far) as hub:
        hub.kill()
        settings = json.loads(json.dumps({"state_directory": str(hub.state)}))
        hub.config.write_text(json.dumps(settings))
        (hub.state / "respond.db").unlink(missing_ok=True)
        hub.start()
        assert not (hub.state / "respond.db").exists()


def test_a_watchdog_that_stops_is_notified(tmp_path: Path, far: FarSide) -> None:
    """Its messages are no notifications; their absence is one, also after a restart."""
    watchdog = {"channels": ["first"], "after": "2s"}
    with hub_with_channels(tmp_path, far, watchdog=watchdog) as hub:
        beat = message(1, alertname="Watchdog", severity="none")
        assert send(hub, beat).ok
        wait_until(lambda: "test: no alerts arrive" in titles(far), 30, "the notification")
        wait_until(lambda: not sends_something(hub), 20, "a note of it")
        hub.kill()
        hub.start()
        missing = "test: no alerts arrive"
        wait_until(lambda: titles(far).count(missing) == 2, 30, "it, after the restart")
        assert send(hub, beat).ok
        wait_until(lambda: "test: alerts arrive again" in titles(far), 30, "the end")


@pytest.mark.parametrize("what", ["text", "empty", "folder"])
def test_a_hub_whose_file_is_damaged_starts_and_notifies(
    tmp_path: Path, far: FarSide, what: str
) -> None:
    with hub_with_channels(tmp_path, far) as hub:
        hub.kill()
        path = hub.state / "respond.db"
        for suffix in ("", "-wal", "-shm"):
            Path(f"{path}{suffix}").unlink(missing_ok=True)
        if what == "folder":
            path.mkdir()
        else:
            path.write_text("not a database" * 100 * (what == "text"))
        hub.start()
        assert send(hub, message(1)).json() == {"new": True}
        wait_until(lambda: far.numbers("first") == {1: 1}, 20, "the notification")
        text = metrics(hub.port)
        assert 'nodevitals_hub_set_aside{what="file"} 1.0' in text
        assert 'nodevitals_hub_set_aside_timestamp_seconds{what="file"}' in text
        log = hub.log.read_text()
        assert log.count("respond.db is damaged (") == 1
        assert "Traceback" not in log


def test_records_that_cannot_be_decoded_hold_up_nothing(tmp_path: Path, far: FarSide) -> None:
    """One in each table, before and after those that can."""
    watchdog = {"channels": ["first"], "after": "1h"}
    with hub_with_channels(tmp_path, far, watchdog=watchdog) as hub:
        send(hub, message(1))
        wait_until(lambda: far.numbers("first") == {1: 1}, 20, "the notification")
        wait_until(lambda: not sends_something(hub), 20, "a note of it")
        hub.kill()
        with sqlite3.connect(hub.state / "respond.db") as connection:
            for reader in ("notify", "incidents", "owners"):
                connection.execute("INSERT INTO inbox VALUES (NULL, 1, ?, '{')", (reader,))
            into = "deliveries (id, channel, state, created, next_try, record)"
            values = "('a', 'first', 'waiting', 1, 1, 'b')"
            connection.execute(f"INSERT INTO {into} VALUES {values}")
            connection.execute("INSERT INTO incidents VALUES ('a', 'k', 1, NULL, 'n', '[')")
            connection.execute("INSERT INTO drills VALUES ('a', 9e9, '')")
            connection.execute("INSERT OR REPLACE INTO facts VALUES ('link key', 7)")
            connection.execute("INSERT OR REPLACE INTO facts VALUES ('watchdog clusters', '{')")
        connection.close()
        hub.start()
        assert send(hub, message(2)).json() == {"new": True}
        wait_until(lambda: far.numbers("first") == {1: 1, 2: 1}, 30, "the next notification")
        url = f"http://127.0.0.1:{hub.port}"

        def incidents() -> set[str]:
            found = requests.get(f"{url}/api/v1/incidents", timeout=PATIENCE_SECONDS).json()[
                "incidents"
            ]
            return {one["title"] for one in found}

        wait_until(lambda: len(incidents()) == 2, 20, "both incidents")
        assert requests.get(f"{url}/api/v1/drills", timeout=PATIENCE_SECONDS).json() == []
        expected = {"message": 3, "delivery": 1, "incident": 1, "drill": 1, "fact": 2}
        text = metrics(hub.port)
        for what, number in expected.items():
            assert f'nodevitals_hub_set_aside{{what="{what}"}} {number}.0' in text
        log = hub.log.read_text()
        assert log.count("set aside") == sum(expected.values())
        assert "Traceback" not in log


def titles(far: FarSide) -> list[str]:
    """The titles that arrived, without their marks."""
    return [title.partition("] ")[2] for _, title, _ in list(far.taken)]
