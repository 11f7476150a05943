"""What is news of a group, and which notification of a thread is sent."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from nodevitals_hub.records import MAX_ALERTS, Alert, Delivery, Message
from nodevitals_hub.store import delivery_tables, inbox_tables, response_database, sound_files
from nodevitals_hub.store.response_database import MIGRATIONS, Database

HOUR = 3600.0
FIRING, RESOLVED = "firing", "resolved"


@pytest.fixture
def connection(tmp_path: Path) -> Iterator[sqlite3.Connection]:
    with closing(response_database._connect(tmp_path / "respond.db")) as found:
        yield found


def message(*alerts: tuple[str, Any, int], **more: Any) -> Message:
    """Of names, states and starts."""
    found = tuple(
        Alert(status=status, fingerprint=name, labels={}, starts_at=str(start))
        for name, status, start in alerts
    )
    group = {"version": "4", "group_key": "g", "receiver": "chat", "status": FIRING, **more}
    return Message(alerts=found, **group)


A1, A2, A_OVER = ("a", FIRING, 1), ("a", FIRING, 2), ("a", RESOLVED, 1)
B1, B_OVER = ("b", FIRING, 1), ("b", RESOLVED, 1)


@pytest.mark.parametrize(
    ("messages", "news"),
    [
        ([[A1], [A1]], [True, False]),
        ([[A1], [A_OVER], [A_OVER]], [True, True, False]),
        ([[A1], [A_OVER], [A1], [A_OVER], [A1]], [True] * 5),
        ([[A1], [A1], [A_OVER], [A_OVER], [A1], [A1]], [True, False] * 3),
        ([[A1], [A2]], [True, True]),
        ([[A1], [A1, B1], [B1, A1], [A1]], [True, True, False, False]),
        ([[A1, B1], [A1, B_OVER], [A1], [A1, B1]], [True, True, False, True]),
    ],
)
def test_a_message_is_news_where_an_alert_is_not_as_its_group_said_last(
    connection: sqlite3.Connection, messages: list[list[tuple[str, Any, int]]], news: list[bool]
) -> None:
    found = [
        inbox_tables.add(connection, message(*alerts), ["notify"], float(moment), HOUR)
        for moment, alerts in enumerate(messages)
    ]
    assert found == news
    assert inbox_tables.waiting(connection) == sum(news)


def test_groups_receivers_and_numbers_of_truncated_alerts_are_told_apart(
    connection: sqlite3.Connection,
) -> None:
    for more in ({}, {"group_key": "h"}, {"receiver": "pager"}, {"truncated": 5}):
        assert inbox_tables.add(connection, message(A1, **more), ["notify"], 1.0, HOUR)


def test_what_was_said_is_said_again_as_a_reminder(connection: sqlite3.Connection) -> None:
    """Also where the clock was set back, and where what a group said cannot be read."""
    for moment, new in ((10.0, True), (HOUR, False), (HOUR + 10.0, True), (5.0, True)):
        assert inbox_tables.add(connection, message(A1), ["notify"], moment, HOUR) is new
    connection.execute("UPDATE groups SET record = '{'")
    assert inbox_tables.add(connection, message(A1), ["notify"], 6.0, HOUR)
    inbox_tables.forget(connection, 6.0 + inbox_tables.KEEP_SECONDS)
    assert connection.execute("SELECT count(*) FROM groups").fetchone() == (0,)


def test_alerts_that_fire_again_are_named_to_the_readers(connection: sqlite3.Connection) -> None:
    for alerts, again in (((A1, B1), ()), ((A_OVER, B1), ()), ((A1, B1), ("a",)), ((A2,), ())):
        assert inbox_tables.add(connection, message(*alerts), ["notify"], 1.0, HOUR)
        received = inbox_tables.oldest(connection, "notify")
        assert received is not None
        assert received.message.again == again
        assert [one.fingerprint for one in received.message.alerts] == [one[0] for one in alerts]
        inbox_tables.remove(connection, received.number)


def test_no_sender_chooses_what_fires_again() -> None:
    """Which alerts do is not what the body of a message says."""
    body = {**msgspec.to_builtins(message(A1)), "again": ["a"]}
    assert not hasattr(msgspec.convert(body, Message), "again")


def test_what_a_group_said_is_bounded(connection: sqlite3.Connection) -> None:
    for moment in range(3):
        many = [(f"{moment}x{number}", FIRING, 1) for number in range(6000)]
        assert inbox_tables.add(connection, message(*many), ["notify"], float(moment), HOUR)
    [record] = connection.execute("SELECT record FROM groups").fetchone()
    alerts = msgspec.json.decode(record)["alerts"]
    assert len(alerts) == MAX_ALERTS
    assert {name[0] for name in alerts} == {"1", "2"}


def delivery(number: int, **more: Any) -> Delivery:
    own = {"thread": "t", "created": float(number), "says": str(number), **more}
    return Delivery(id=f"{number}-chat", channel="chat", title="t", text="x", **own)


def superseded(connection: sqlite3.Connection, now: float = 100.0) -> list[str]:
    found = delivery_tables.supersede(connection, "chat", now, HOUR)
    return sorted(one.id for one in found)


def due(connection: sqlite3.Connection) -> list[str]:
    return [one.id for one in delivery_tables.due(connection, "chat", 200.0, 100)]


def test_the_newest_of_a_thread_is_sent_however_often_others_were_tried(
    connection: sqlite3.Connection,
) -> None:
    """A newer one that was sent already counts as well: what it replaced does not follow it."""
    made = [delivery(number, attempts=4 - number) for number in range(1, 4)]
    others = [delivery(4, thread=""), delivery(5, thread=""), delivery(6, thread="u")]
    delivery_tables.write(connection, [*made, *others, replace(delivery(7), channel="mail")])
    assert superseded(connection) == ["1-chat", "2-chat"]
    assert due(connection) == ["3-chat", "4-chat", "5-chat", "6-chat"]
    assert superseded(connection) == []
    delivery_tables.write(connection, [replace(made[0], state="waiting")])
    delivery_tables.write(connection, [replace(made[2], state="sent", next_try=100.0, ended=100.0)])
    assert superseded(connection) == ["1-chat"]


def test_what_says_the_same_as_the_last_that_was_sent_is_not_sent_for_a_while(
    connection: sqlite3.Connection,
) -> None:
    sent = delivery(1, says="x", state="sent", next_try=100.0, ended=100.0)
    other = delivery(2, says="y", state="sent", next_try=101.0, ended=101.0)
    for before, now, ended in (
        ([sent], 102.0, ["9-chat"]),
        ([sent, other], 102.0, []),
        ([sent], 101.0 + HOUR, []),
        ([sent], 99.0, []),
        ([replace(sent, thread="u")], 102.0, []),
        ([replace(sent, state="dropped")], 102.0, []),
    ):
        connection.execute("DELETE FROM deliveries")
        delivery_tables.write(connection, [*before, delivery(9, says="x")])
        assert superseded(connection, now) == ended
        connection.execute("DELETE FROM deliveries")
        delivery_tables.write(connection, [*before, delivery(9, says="")])
        assert superseded(connection, now) == [], "of an earlier version"


def test_a_channel_has_waited_since_the_first_that_it_did_not_take(
    connection: sqlite3.Connection,
) -> None:
    """But a notification is given up by its own age."""
    tried = delivery_tables.FEWEST_ATTEMPTS
    delivery_tables.write(connection, [delivery(1), delivery(50, since=1.0, attempts=tried)])
    assert superseded(connection) == ["1-chat"]
    [waiting] = delivery_tables.waiting(connection)
    assert (waiting.number, waiting.oldest) == (1, 1.0)
    assert delivery_tables.too_old(connection, 40.0) == []
    assert [one.id for one in delivery_tables.too_old(connection, 51.0)] == ["50-chat"]


def test_only_what_waits_is_taken_over(connection: sqlite3.Connection) -> None:
    delivery_tables.write(connection, [delivery(1)])
    newest = delivery_tables.newest_of(connection, "chat", "t")
    assert newest is not None
    assert newest.id == "1-chat"
    delivery_tables.write(connection, [delivery(2, state="sent")])
    assert delivery_tables.newest_of(connection, "chat", "t") is None
    assert delivery_tables.newest_of(connection, "mail", "t") is None


def test_a_file_of_an_earlier_version_goes_on(tmp_path: Path) -> None:
    """What waits in it is sent, in its order."""
    path = tmp_path / "respond.db"
    with closing(sqlite3.connect(path, isolation_level=None)) as old:
        sound_files.create(old, MIGRATIONS[:2], "FULL")
        record = msgspec.json.encode(delivery(1))
        into = "deliveries (id, channel, state, created, next_try, record)"
        old.execute(f"INSERT INTO {into} VALUES ('1-chat', 'chat', 'waiting', 1, 1, ?)", (record,))
        old.execute("INSERT INTO seen VALUES ('0123', 1), ('owner 0123', 1)")
        body = msgspec.json.encode(message(A1))
        old.execute("INSERT INTO inbox VALUES (1, 1, 'notify', ?)", (body,))
    works: list[Callable[[sqlite3.Connection], Any]] = [
        superseded,
        due,
        lambda one: inbox_tables.oldest(one, "notify"),
        lambda one: inbox_tables.forget(one, 2.0),
        lambda one: one.execute("SELECT key FROM seen").fetchall(),
    ]

    async def main() -> list[Any]:
        opened = Database(str(tmp_path))
        try:
            return [await opened.do(work) for work in works]
        finally:
            await opened.close()

    ended, left, received, _, seen = asyncio.run(main())
    assert (ended, left, seen) == ([], ["1-chat"], [("owner 0123",)])
    assert received.message.again == ()
