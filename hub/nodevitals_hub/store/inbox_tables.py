"""Statements on the tables `inbox`, `groups` and `seen`: messages of Alertmanager that wait for a
reader, what each group said last, and keys of what owners of jobs were notified of.

Functions of a connection, within the caller's transaction. Each reader has its own row of a
message, which it removes in the transaction that stores what it made of it.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Sequence
from hashlib import sha256

import msgspec

from nodevitals_hub.records import MAX_ALERTS, KeptMessage, Message, Received
from nodevitals_hub.store import aside_tables

KEEP_SECONDS = 30 * 86400.0
RESOLVED = ""
_message = msgspec.json.Decoder(KeptMessage).decode


class Said(msgspec.Struct, frozen=True):
    """What a group said last to a receiver."""

    truncated: int = 0
    alerts: dict[str, str] = {}
    """By fingerprint the start of one that fires, RESOLVED of one that does not; the newest last.
    """

    def after(self, message: Message) -> Said:
        """What it has said after a message, which need not mention all of its alerts."""
        new = {
            one.fingerprint: one.starts_at if one.status == "firing" else RESOLVED
            for one in message.alerts
        }
        kept = {name: state for name, state in self.alerts.items() if name not in new}
        room = max(0, MAX_ALERTS - len(new))
        kept = dict(list(kept.items())[max(0, len(kept) - room) :])
        return Said(message.truncated, kept | new)


_said = msgspec.json.Decoder(Said).decode


def add(
    connection: sqlite3.Connection,
    message: Message,
    readers: Sequence[str],
    now: float,
    same_within: float,
) -> bool:
    """Store a message for each reader; False where it is a repetition: its group has said that of
    each of its alerts last.

    Where the clock was set back, the time of an earlier one lies ahead: that one is none.
    """
    last, moment = _last(connection, message)
    said = last.after(message)
    # An alert that fires with the start that it had is news where it was resolved meanwhile.
    if said == last and 0 <= now - moment < same_within:
        return False
    again = tuple(
        one.fingerprint
        for one in message.alerts
        if one.status == "firing" and last.alerts.get(one.fingerprint) == RESOLVED
    )
    connection.execute(
        "INSERT OR REPLACE INTO groups VALUES (?, ?, ?)",
        (_group(message), now, msgspec.json.encode(said)),
    )
    body = msgspec.json.encode(KeptMessage(again=again, **msgspec.structs.asdict(message)))
    connection.executemany(
        "INSERT INTO inbox (time, reader, message) VALUES (?, ?, ?)",
        [(now, reader, body) for reader in readers],
    )
    return True


def _group(message: Message) -> str:
    """The key of a group of a receiver."""
    return sha256(msgspec.json.encode((message.receiver, message.group_key))).hexdigest()


def _last(connection: sqlite3.Connection, message: Message) -> tuple[Said, float]:
    """What a message's group said last, and when."""
    select = "SELECT record, time FROM groups WHERE key = ?"
    for record, moment in connection.execute(select, (_group(message),)):
        try:
            return _said(record), moment
        except aside_tables.ERRORS:
            break  # as if it had said nothing: the message is stored
    return Said(), 0.0


def oldest(connection: sqlite3.Connection, reader: str) -> Received | None:
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


def forget(connection: sqlite3.Connection, now: float) -> None:
    """Forget what nothing is compared with any more, and keys that earlier versions wrote."""
    connection.execute("DELETE FROM seen WHERE key NOT LIKE 'owner %'")
    for table in ("seen", "groups"):
        connection.execute(
            f"DELETE FROM {table} WHERE time <= ? OR time > ?",
            (now - KEEP_SECONDS, now + KEEP_SECONDS),
        )
