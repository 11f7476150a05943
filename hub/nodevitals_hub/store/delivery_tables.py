"""Statements on the table `deliveries`: notifications that wait for a channel, or were sent.

Functions of a connection, within the caller's transaction.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import msgspec
from msgspec.structs import replace

from nodevitals_hub.records import Delivery
from nodevitals_hub.store import aside_tables

LONGEST_WAIT_SECONDS = 600.0
"""Between two attempts."""
ATTEMPTS_OF_A_TURN = 3
"""After so many, the others of its channel get their turn: one that the far side never accepts must
not hold them up."""
FEWEST_ATTEMPTS = 20
"""Before a notification is dropped: a clock that jumps a day ahead drops none."""
KEEP_SECONDS = 7 * 86400.0
KEEP_MOST = 10_000

_delivery = msgspec.json.Decoder(Delivery).decode


class Waiting(NamedTuple):
    """What waits for a channel."""

    channel: str
    number: int
    oldest: float
    """When the oldest was created."""


def write(connection: sqlite3.Connection, deliveries: Iterable[Delivery]) -> None:
    """Store new deliveries, or their new states."""
    connection.executemany(
        "INSERT INTO deliveries"
        " (id, channel, thread, says, state, created, next_try, attempts, record)"
        " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (id) DO UPDATE SET state = excluded.state,"
        " next_try = excluded.next_try, attempts = excluded.attempts, record = excluded.record",
        [
            (
                *(one.id, one.channel, one.thread, one.says, one.state, _since(one)),
                *(one.next_try, one.attempts, msgspec.json.encode(one)),
            )
            for one in deliveries
        ],
    )


def _since(one: Delivery) -> float:
    """The time since which something that it says waits."""
    return one.created if one.since is None else min(one.since, one.created)


def newest_of(connection: sqlite3.Connection, channel: str, thread: str) -> Delivery | None:
    """The newest of a thread, if that waits: it has what the older ones had."""
    rest = "WHERE channel = ? AND thread = ? ORDER BY rowid DESC LIMIT 1"
    found = _read(connection, rest, (channel, thread))
    return next((one for one in found if one.state == "waiting"), None)


def supersede(
    connection: sqlite3.Connection, channel: str, now: float, same_within: float
) -> list[Delivery]:
    """End what is not to be sent to a channel any more: what has a newer one in its thread, and
    what says the same as the one that was sent last, within so many seconds.
    """
    waits = "WHERE state = 'waiting' AND channel = ? AND thread != ''"
    of_thread = "other.channel = deliveries.channel AND other.thread = deliveries.thread"
    newer = (
        f"SELECT 1 FROM deliveries AS other WHERE {of_thread} AND other.rowid > deliveries.rowid"
    )
    older = _read(connection, f"{waits} AND EXISTS ({newer})", (channel,))
    # The next attempt of what was sent is when it was sent.
    last = (
        f"SELECT other.says FROM deliveries AS other WHERE {of_thread} AND other.state = 'sent'"
        " AND other.next_try > ? AND other.next_try <= ? ORDER BY other.rowid DESC LIMIT 1"
    )
    same = _read(
        connection,
        f"{waits} AND says != '' AND says = ({last})",
        (channel, now - same_within, now),
    )
    reasons = {one.id: "no news: the last one that was sent says the same" for one in same}
    reasons |= {one.id: "a newer one of its group took its place" for one in older}
    ended = [
        replace(one, state="superseded", ended=now, error=reasons[one.id], alerts=())
        for one in {one.id: one for one in (*same, *older)}.values()
    ]
    write(connection, ended)
    return ended


def due(connection: sqlite3.Connection, channel: str, now: float, most: int) -> list[Delivery]:
    """What is to be sent to a channel now, in the order of arrival. A next attempt that lies too
    far ahead was written before the clock was set back.
    """
    return _read(
        connection,
        "WHERE state = 'waiting' AND channel = ? AND (next_try <= ? OR next_try > ?)"
        " ORDER BY attempts / ?, rowid LIMIT ?",
        (channel, now, now + LONGEST_WAIT_SECONDS, ATTEMPTS_OF_A_TURN, most),
    )


def next_try(connection: sqlite3.Connection, channel: str) -> float | None:
    """When the next attempt of a channel is due; None where nothing waits."""
    [found] = connection.execute(
        "SELECT min(next_try) FROM deliveries WHERE state = 'waiting' AND channel = ?", (channel,)
    ).fetchone()
    return None if found is None else float(found)


def sent_since(connection: sqlite3.Connection, channel: str, moment: float) -> list[float]:
    """When messages were sent to a channel after a time; those of a digest are one."""
    rows = connection.execute(
        "SELECT DISTINCT next_try FROM deliveries WHERE state = 'sent' AND channel = ?"
        " AND next_try > ? ORDER BY next_try",
        (channel, moment),
    )
    return [float(row[0]) for row in rows]


def waiting(connection: sqlite3.Connection) -> list[Waiting]:
    """What waits, by channel."""
    rows = connection.execute(
        "SELECT channel, count(*), min(created) FROM deliveries WHERE state = 'waiting'"
        " GROUP BY channel ORDER BY channel"
    )
    return [Waiting(*row) for row in rows]


def newest(connection: sqlite3.Connection, state: str, most: int) -> list[Delivery]:
    """The newest deliveries in a state."""
    return _read(connection, "WHERE state = ? ORDER BY rowid DESC LIMIT ?", (state, most))


def too_old(connection: sqlite3.Connection, before: float) -> list[Delivery]:
    """What was created before a time, still waits and was tried often."""
    rest = "WHERE state = 'waiting' AND created < ? AND attempts >= ?"
    found = _read(connection, rest, (before, FEWEST_ATTEMPTS))
    return [
        one for one in found if one.created < before
    ]  # the column has what it took the place of


def _read(connection: sqlite3.Connection, rest: str, values: Sequence[object]) -> list[Delivery]:
    return aside_tables.read(connection, "delivery", rest, values, _delivery)


def prune(connection: sqlite3.Connection, now: float) -> None:
    """Remove what was sent or dropped long ago, and the oldest beyond a number."""
    connection.execute(
        "DELETE FROM deliveries WHERE state != 'waiting' AND (created < ? OR rowid <="
        " (SELECT rowid FROM deliveries ORDER BY rowid DESC LIMIT 1 OFFSET ?))",
        (now - KEEP_SECONDS, KEEP_MOST),
    )
