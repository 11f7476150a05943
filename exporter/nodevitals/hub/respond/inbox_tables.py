"""Statements on the tables `inbox` and `seen`: messages of Alertmanager that wait for a reader.

Functions of a connection, within the caller's transaction. Each reader has its own row of a
message, which it removes in the transaction that stores what it made of it.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Sequence
from hashlib import sha256
from typing import Optional

import msgspec

from nodevitals.hub.respond import aside_tables
from nodevitals.hub.respond.model import Message, Received

KEEP_SECONDS = 30 * 86400.0
_message = msgspec.json.Decoder(Message).decode


def key_of(message: Message) -> str:
    """The same for messages that say the same of a group to the same receiver."""
    alerts = sorted(
        (
            one.fingerprint,
            one.status,
            one.starts_at,
            one.ends_at if one.status == "resolved" else "",
        )
        for one in message.alerts
    )
    said = (message.receiver, message.group_key, message.truncated, alerts)
    return sha256(msgspec.json.encode(said)).hexdigest()


def add(
    connection: sqlite3.Connection,
    message: Message,
    readers: Sequence[str],
    now: float,
    same_within: float,
) -> bool:
    """Store a message for each reader; False where it is a repetition.

    Where the clock was set back, the time of an earlier one lies ahead: that one is none.
    """
    key = key_of(message)
    row = connection.execute("SELECT time FROM seen WHERE key = ?", (key,)).fetchone()
    if row and 0 <= now - row[0] < same_within:
        return False
    connection.execute("INSERT OR REPLACE INTO seen VALUES (?, ?)", (key, now))
    body = msgspec.json.encode(message)
    connection.executemany(
        "INSERT INTO inbox (time, reader, message) VALUES (?, ?, ?)",
        [(now, reader, body) for reader in readers],
    )
    return True


def oldest(connection: sqlite3.Connection, reader: str) -> Optional[Received]:
    """The oldest message that waits for a reader; what cannot be decoded is set aside."""
    select = "SELECT number, time, message FROM inbox WHERE reader = ? ORDER BY number LIMIT 1"
    while (row := connection.execute(select, (reader,)).fetchone()) is not None:
        number, received, body = row
        try:
            return Received(number=number, time=received, message=_message(body))
        except aside_tables.ERRORS:
            set_aside(connection, number, "cannot be decoded")
    return None


def set_aside(connection: sqlite3.Connection, number: int, reason: str) -> None:
    """Keep a message that its reader cannot process, out of the way of the others."""
    row = connection.execute("SELECT reader, message FROM inbox WHERE number = ?", (number,))
    for reader, body in row.fetchall():
        remove(connection, number)
        aside_tables.set_aside(connection, "message", f"{number} of {reader}", body, reason)


def remove(connection: sqlite3.Connection, number: int) -> None:
    """A reader is done with a message."""
    connection.execute("DELETE FROM inbox WHERE number = ?", (number,))


def waits_since(connection: sqlite3.Connection, reader: str, moment: float) -> bool:
    """Whether a message waits for a reader since a time, or longer."""
    select = "SELECT 1 FROM inbox WHERE reader = ? AND time <= ? LIMIT 1"
    return connection.execute(select, (reader, moment)).fetchone() is not None


def waiting(connection: sqlite3.Connection) -> int:
    """Number of messages that wait for any reader."""
    [number] = connection.execute("SELECT count(*) FROM inbox").fetchone()
    return int(number)


def known(connection: sqlite3.Connection, keys: Iterable[str]) -> set[str]:
    """The keys, of these, that were remembered."""
    select = "SELECT key FROM seen WHERE key = ?"
    rows = (connection.execute(select, (key,)).fetchone() for key in keys)
    return {row[0] for row in rows if row}


def known_within(
    connection: sqlite3.Connection, keys: Iterable[str], now: float, seconds: float
) -> set[str]:
    """The keys, of these, that were remembered within so many seconds."""
    select = "SELECT key FROM seen WHERE key = ? AND time > ? AND time <= ?"
    rows = (connection.execute(select, (key, now - seconds, now)).fetchone() for key in keys)
    return {row[0] for row in rows if row}


def remember(connection: sqlite3.Connection, keys: Iterable[str], now: float) -> None:
    """Remember keys for KEEP_SECONDS; they begin with `owner `."""
    connection.executemany(
        "INSERT OR REPLACE INTO seen VALUES (?, ?)", [(key, now) for key in keys]
    )


def forget(connection: sqlite3.Connection, now: float, same_within: float) -> None:
    """Forget what nothing is compared with any more."""
    for kind, seconds in (("NOT LIKE", same_within), ("LIKE", KEEP_SECONDS)):
        connection.execute(
            f"DELETE FROM seen WHERE key {kind} 'owner %' AND (time <= ? OR time > ?)",
            (now - seconds, now + seconds),
        )
