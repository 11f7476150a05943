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
"""Longest time between two attempts."""
ATTEMPTS_OF_A_TURN = 3
"""After this number, other deliveries of the channel are tried first: a message that the other side
never accepts must not block them."""
FEWEST_ATTEMPTS = 20
"""Attempts before a notification is dropped: a clock that jumps a day ahead drops none."""
KEEP_SECONDS = 7 * 86400.0
KEEP_MOST = 10_000

_delivery = msgspec.json.Decoder(Delivery).decode


class Waiting(NamedTuple):
    """The deliveries that wait for a channel."""

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
                *(
                    delivery.id,
                    delivery.channel,
                    delivery.thread,
                    delivery.says,
                    delivery.state,
                    _since(delivery),
                ),
                *(delivery.next_try, delivery.attempts, msgspec.json.encode(delivery)),
            )
            for delivery in deliveries
        ],
    )


def _since(delivery: Delivery) -> float:
    """The time since which one of its alerts waits."""
    return delivery.created if delivery.since is None else min(delivery.since, delivery.created)


def newest_of(connection: sqlite3.Connection, channel: str, thread: str) -> Delivery | None:
    """The newest delivery of a thread, if it waits; it contains the alerts of the older ones."""
    rest = "WHERE channel = ? AND thread = ? ORDER BY rowid DESC LIMIT 1"
    deliveries = _read(connection, rest, (channel, thread))
    return next((delivery for delivery in deliveries if delivery.state == "waiting"), None)


def supersede(
    connection: sqlite3.Connection, channel: str, now: float, same_within: float
) -> list[Delivery]:
    """End deliveries that a channel no longer needs: those with a newer one in their thread, and
    those that repeat the last sent one within `same_within` seconds.
    """
    waits = "WHERE state = 'waiting' AND channel = ? AND thread != ''"
    of_thread = "other.channel = deliveries.channel AND other.thread = deliveries.thread"
    newer = (
        f"SELECT 1 FROM deliveries AS other WHERE {of_thread} AND other.rowid > deliveries.rowid"
    )
    older = _read(connection, f"{waits} AND EXISTS ({newer})", (channel,))
    # `next_try` of a sent delivery is the time at which it was sent.
    last = (
        f"SELECT other.says FROM deliveries AS other WHERE {of_thread} AND other.state = 'sent'"
        " AND other.next_try > ? AND other.next_try <= ? ORDER BY other.rowid DESC LIMIT 1"
    )
    same = _read(
        connection,
        f"{waits} AND says != '' AND says = ({last})",
        (channel, now - same_within, now),
    )
    reasons = {
        delivery.id: "no news: the last one that was sent says the same" for delivery in same
    }
    reasons |= {delivery.id: "a newer one of its group took its place" for delivery in older}
    ended = [
        replace(delivery, state="superseded", ended=now, error=reasons[delivery.id], alerts=())
        for delivery in {delivery.id: delivery for delivery in (*same, *older)}.values()
    ]
    write(connection, ended)
    return ended


def due(connection: sqlite3.Connection, channel: str, now: float, most: int) -> list[Delivery]:
    """The deliveries that are due for a channel, in the order of arrival. A next attempt that is
    too far ahead was written before the clock was set back.
    """
    return _read(
        connection,
        "WHERE state = 'waiting' AND channel = ? AND (next_try <= ? OR next_try > ?)"
        " ORDER BY attempts / ?, rowid LIMIT ?",
        (channel, now, now + LONGEST_WAIT_SECONDS, ATTEMPTS_OF_A_TURN, most),
    )


def next_try(connection: sqlite3.Connection, channel: str) -> float | None:
    """When the next attempt of a channel is due; None where nothing waits."""
    [moment] = connection.execute(
        "SELECT min(next_try) FROM deliveries WHERE state = 'waiting' AND channel = ?", (channel,)
    ).fetchone()
    return None if moment is None else float(moment)


def sent_since(connection: sqlite3.Connection, channel: str, moment: float) -> list[float]:
    """Times of the messages sent to a channel since a time; a digest is one message."""
    rows = connection.execute(
        "SELECT DISTINCT next_try FROM deliveries WHERE state = 'sent' AND channel = ?"
        " AND next_try > ? ORDER BY next_try",
        (channel, moment),
    )
    return [float(row[0]) for row in rows]


def waiting(connection: sqlite3.Connection) -> list[Waiting]:
    """The waiting deliveries by channel."""
    rows = connection.execute(
        "SELECT channel, count(*), min(created) FROM deliveries WHERE state = 'waiting'"
        " GROUP BY channel ORDER BY channel"
    )
    return [Waiting(*row) for row in rows]


def newest(connection: sqlite3.Connection, state: str, most: int) -> list[Delivery]:
    """The newest deliveries in a state."""
    return _read(connection, "WHERE state = ? ORDER BY rowid DESC LIMIT ?", (state, most))


def too_old(connection: sqlite3.Connection, before: float) -> list[Delivery]:
    """The waiting deliveries that were created before a time and tried often."""
    rest = "WHERE state = 'waiting' AND created < ? AND attempts >= ?"
    deliveries = _read(connection, rest, (before, FEWEST_ATTEMPTS))
    # The column may have the time of a delivery that this one replaced.
    return [delivery for delivery in deliveries if delivery.created < before]


def _read(connection: sqlite3.Connection, rest: str, values: Sequence[object]) -> list[Delivery]:
    return aside_tables.read(connection, "delivery", rest, values, _delivery)


def prune(connection: sqlite3.Connection, now: float) -> None:
    """Remove deliveries that ended long ago, and the oldest beyond a number."""
    connection.execute(
        "DELETE FROM deliveries WHERE state != 'waiting' AND (created < ? OR rowid <="
        " (SELECT rowid FROM deliveries ORDER BY rowid DESC LIMIT 1 OFFSET ?))",
        (now - KEEP_SECONDS, KEEP_MOST),
    )
