"""Statements on the tables `inbox`, `groups` and `seen`: messages of Alertmanager that wait for a
reader, the last state of each group, and keys of the jobs whose owners were notified.

Functions of a connection, within the caller's transaction. Each reader has its own row of a
message, which it removes in the transaction that stores its results.
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


class GroupState(msgspec.Struct, frozen=True):
    """The state of a group's alerts by its messages to a receiver."""

    truncated: int = 0
    alerts: dict[str, str] = {}
    """By fingerprint, the start of a firing alert, or RESOLVED; the newest last."""

    def after(self, message: Message) -> GroupState:
        """The state after a message, which may omit some of the group's alerts."""
        new = {
            alert.fingerprint: alert.starts_at if alert.status == "firing" else RESOLVED
            for alert in message.alerts
        }
        kept = {name: state for name, state in self.alerts.items() if name not in new}
        room = max(0, MAX_ALERTS - len(new))
        kept = dict(list(kept.items())[max(0, len(kept) - room) :])
        return GroupState(message.truncated, kept | new)


_group_state = msgspec.json.Decoder(GroupState).decode


def add(
    connection: sqlite3.Connection,
    message: Message,
    readers: Sequence[str],
    now: float,
    same_within: float,
) -> bool:
    """Store a message for each reader; False where it is a repetition, which does not change the
    state of its group. After the clock was set back, a state from the future is no repetition.
    """
    last, moment = _last(connection, message)
    said = last.after(message)
    # An alert that fires again with its earlier start is new if it was resolved meanwhile.
    if said == last and 0 <= now - moment < same_within:
        return False
    again = tuple(
        alert.fingerprint
        for alert in message.alerts
        if alert.status == "firing" and last.alerts.get(alert.fingerprint) == RESOLVED
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
    """The key of a receiver's group."""
    return sha256(msgspec.json.encode((message.receiver, message.group_key))).hexdigest()


def _last(connection: sqlite3.Connection, message: Message) -> tuple[GroupState, float]:
    """The last state of a message's group, and its time."""
    select = "SELECT record, time FROM groups WHERE key = ?"
    for record, moment in connection.execute(select, (_group(message),)):
        try:
            return _group_state(record), moment
        except aside_tables.ERRORS:
            break  # as without a state: the message is stored
    return GroupState(), 0.0


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
    """Move a message that its reader cannot process to the table `aside`."""
    row = connection.execute("SELECT reader, message FROM inbox WHERE number = ?", (number,))
    for reader, body in row.fetchall():
        remove(connection, number)
        aside_tables.set_aside(connection, "message", f"{number} of {reader}", body, reason)


def remove(connection: sqlite3.Connection, number: int) -> None:
    """Remove the row of a message that its reader has processed."""
    connection.execute("DELETE FROM inbox WHERE number = ?", (number,))


def waits_since(connection: sqlite3.Connection, reader: str, moment: float) -> bool:
    """Whether a message that arrived at or before a time waits for a reader."""
    select = "SELECT 1 FROM inbox WHERE reader = ? AND time <= ? LIMIT 1"
    return connection.execute(select, (reader, moment)).fetchone() is not None


def waiting(connection: sqlite3.Connection) -> int:
    """Number of messages that wait for any reader."""
    [number] = connection.execute("SELECT count(*) FROM inbox").fetchone()
    return int(number)


def known(connection: sqlite3.Connection, keys: Iterable[str]) -> set[str]:
    """Those of these keys that are stored."""
    select = "SELECT key FROM seen WHERE key = ?"
    rows = (connection.execute(select, (key,)).fetchone() for key in keys)
    return {row[0] for row in rows if row}


def known_within(
    connection: sqlite3.Connection, keys: Iterable[str], now: float, seconds: float
) -> set[str]:
    """Those of these keys that were stored within the last `seconds`."""
    select = "SELECT key FROM seen WHERE key = ? AND time > ? AND time <= ?"
    rows = (connection.execute(select, (key, now - seconds, now)).fetchone() for key in keys)
    return {row[0] for row in rows if row}


def remember(connection: sqlite3.Connection, keys: Iterable[str], now: float) -> None:
    """Store keys for KEEP_SECONDS; they begin with `owner `."""
    connection.executemany(
        "INSERT OR REPLACE INTO seen VALUES (?, ?)", [(key, now) for key in keys]
    )


def forget(connection: sqlite3.Connection, now: float) -> None:
    """Remove old keys and group states, and keys of earlier versions."""
    connection.execute("DELETE FROM seen WHERE key NOT LIKE 'owner %'")
    for table in ("seen", "groups"):
        connection.execute(
            f"DELETE FROM {table} WHERE time <= ? OR time > ?",
            (now - KEEP_SECONDS, now + KEEP_SECONDS),
        )
