"""A record of respond.db that cannot be decoded holds up no other."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from nodevitals.hub.respond import (
    aside_tables,
    delivery_tables,
    drill_tables,
    inbox_tables,
    incident_tables,
    watchdog,
)
from nodevitals.hub.respond.database import Database
from nodevitals.hub.respond.model import Delivery, Drill, Incident

POISON: tuple[Any, ...] = (b"{", b"", b"\xff\xfe", b"null", b"[" * 100_000, b'{"id": "x"}', 7, "t")
INTO = "deliveries (id, channel, state, created, next_try, record)"
NAME = "20261123-043120-jcldqs"
INCIDENT = Incident(id=NAME, key="k", title="t", severity="critical", opened=10.0)
DRILL = Drill(id=NAME, node="gpu-1", fault="x", severity="critical", created=0.0, until=9.0, by="a")
DELIVERY = Delivery(id="1-chat", channel="chat", created=1.0, title="t", text="x")
Work = Callable[[sqlite3.Connection], Any]


def done(folder: Path, *works: Work) -> list[Any]:
    """What transactions return, and last what is aside: its kinds and numbers."""

    async def main() -> list[Any]:
        database = Database(str(folder))
        try:
            found = [await database.do(work) for work in works]
            return [*found, [(one.kind, one.number) for one in database.aside]]
        finally:
            await database.close()

    return asyncio.run(main())


def poisoned(into: str, *more: object) -> Work:
    def work(connection: sqlite3.Connection) -> None:
        for number, record in enumerate(POISON):
            values = [f"{number}-bad" if one is NAME else one for one in more]
            connection.execute(f"INSERT INTO {into}", (*values, record))

    return work


@pytest.mark.parametrize(
    "read",
    [
        lambda c: delivery_tables.due(c, "chat", 100.0, 100),
        lambda c: delivery_tables.newest(c, "waiting", 100),
    ],
)
def test_deliveries(tmp_path: Path, read: Work) -> None:
    bad = poisoned(f"{INTO} VALUES (?, ?, ?, ?, ?, ?)", NAME, "chat", "waiting", 1.0, 1.0)
    good = lambda c: delivery_tables.write(c, [DELIVERY])  # noqa: E731
    *_, first, again, aside = done(tmp_path, bad, good, read, read)
    assert first == again == [DELIVERY]
    assert aside == [("delivery", len(POISON))]


@pytest.mark.parametrize(
    "read",
    [
        incident_tables.unresolved,
        lambda c: incident_tables.between(c, 0.0, 100.0, 100),
        lambda c: [incident_tables.newest_of(c, "k")],
    ],
)
def test_incidents(tmp_path: Path, read: Work) -> None:
    bad = poisoned("incidents VALUES (?, ?, ?, ?, ?, ?)", NAME, "k", 1.0, None, "n")
    good = lambda c: incident_tables.write(c, INCIDENT)  # noqa: E731
    *_, first, aside = done(tmp_path, bad, good, incident_tables.unresolved, read)
    assert first == [INCIDENT]
    assert aside == [("incident", len(POISON))]


def test_an_incident_is_found_by_its_alert_beside_damaged_ones(tmp_path: Path) -> None:
    def bad(connection: sqlite3.Connection) -> None:
        connection.execute("INSERT INTO incidents VALUES ('a', 'k', 1, NULL, 'n', '{abc')")

    found, aside = done(tmp_path, bad, lambda c: incident_tables.with_alert(c, "abc"))[1:]
    assert (found, aside) == (None, [("incident", 1)])


def test_drills(tmp_path: Path) -> None:
    bad = poisoned("drills VALUES (?, ?, ?)", NAME, 1.0)
    good = lambda c: drill_tables.write(c, DRILL)  # noqa: E731
    *_, found, aside = done(tmp_path, bad, good, lambda c: drill_tables.newest(c, 100))
    assert (found, aside) == ([DRILL], [("drill", len(POISON))])


def test_messages_however_many(tmp_path: Path) -> None:
    def bad(connection: sqlite3.Connection) -> None:
        row = (0.0, "notify", b"[" * 9999)
        connection.executemany(
            "INSERT INTO inbox (time, reader, message) VALUES (?, ?, ?)", [row] * 3000
        )

    found, number, aside = done(
        tmp_path, bad, lambda c: inbox_tables.oldest(c, "notify"), inbox_tables.waiting
    )[1:]
    assert (found, number, aside) == (None, 0, [("message", 3000)])
    [_, aside] = done(tmp_path, lambda c: aside_tables.prune(c, 0.0))
    assert aside == [("message", aside_tables.KEEP_MOST)]


def test_the_clusters_of_the_watchdog(tmp_path: Path) -> None:
    bad = lambda c: c.execute("INSERT INTO facts VALUES (?, '{')", (watchdog.FACT,)).close()  # noqa: E731
    *_, found, aside = done(tmp_path, bad, watchdog._read)
    assert (found, aside) == ([], [("fact", 1)])


def test_letters_that_are_damaged_hold_up_no_other_row(tmp_path: Path) -> None:
    """A flipped bit in a text is no damage that SQLite finds."""

    def bad(connection: sqlite3.Connection) -> None:
        delivery_tables.write(connection, [DELIVERY])
        connection.execute(
            f"INSERT INTO {INTO} VALUES (CAST(x'ff31' AS TEXT), CAST(x'63ff' AS TEXT),"
            " 'waiting', 1, 1, '{}')"
        )

    _, names, found, _ = done(
        tmp_path,
        bad,
        lambda c: [one.channel for one in delivery_tables.waiting(c)],
        lambda c: delivery_tables.newest(c, "waiting", 100),
    )
    assert names == ["c\ufffd", "chat"] or names == ["chat", "c\ufffd"]
    assert found == [DELIVERY]
