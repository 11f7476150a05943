"""Statements for isolations: functions of a connection, each within a transaction.

The column `state` of a canceled isolation whose faults have not ended is `watched`.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable
from typing import Callable, Optional

import msgspec

from nodevitals.hub.respond.conditions import is_watched
from nodevitals.hub.respond.ledger import Ledger
from nodevitals.hub.respond.model import Isolation

LEDGER = "isolations"
WATCHED = "watched"
KEEP_SECONDS = 200 * 86400.0
MAX_LISTED = 1000


def followed(connection: sqlite3.Connection) -> list[Isolation]:
    """The open isolations, and the canceled ones whose faults have not ended; the oldest first."""
    rows = connection.execute(
        "SELECT record FROM isolations WHERE state IN"
        " ('waiting', 'refused', 'isolated', 'testing', 'kept', 'watched') ORDER BY created, id"
    )
    return [_decoded(row[0]) for row in rows]


def newest(connection: sqlite3.Connection, limit: int) -> list[Isolation]:
    """The newest that have ended."""
    rows = connection.execute(
        "SELECT record FROM isolations WHERE state NOT IN"
        " ('waiting', 'refused', 'isolated', 'testing', 'kept')"
        " ORDER BY created DESC, id DESC LIMIT ?",
        (min(limit, MAX_LISTED),),
    )
    return [_decoded(row[0]) for row in rows]


def recent(connection: sqlite3.Connection, since: float) -> list[Isolation]:
    """Those made since then that are not, or no longer, to be out of service."""
    rows = connection.execute(
        "SELECT record FROM isolations WHERE created >= ? AND state NOT IN"
        " ('waiting', 'isolated', 'testing', 'kept') ORDER BY created DESC, id DESC LIMIT ?",
        (since, MAX_LISTED),
    )
    return [_decoded(row[0]) for row in rows]


def get(connection: sqlite3.Connection, identity: str) -> Optional[Isolation]:
    """One isolation."""
    row = connection.execute("SELECT record FROM isolations WHERE id = ?", (identity,)).fetchone()
    return None if row is None else _decoded(row[0])


def put(connection: sqlite3.Connection, isolations: Iterable[Isolation]) -> None:
    """Write isolations, new ones or not."""
    connection.executemany(
        "INSERT INTO isolations (id, node, state, created, record) VALUES (?, ?, ?, ?, ?)"
        " ON CONFLICT (id) DO UPDATE SET state = excluded.state, record = excluded.record",
        [
            (
                one.id,
                one.node,
                WATCHED if is_watched(one) else one.state,
                one.created,
                msgspec.json.encode(one),
            )
            for one in isolations
        ],
    )


def change(
    connection: sqlite3.Connection, identity: str, act: Callable[[Isolation], Isolation]
) -> tuple[Optional[Isolation], Optional[Isolation]]:
    """Replace one by what a function makes of it: before and after."""
    before = get(connection, identity)
    if before is None:
        return None, None
    after = act(before)
    if after != before:
        put(connection, [after])
    return before, after


def ledger(connection: sqlite3.Connection) -> Ledger:
    """What is remembered; nothing at first."""
    row = connection.execute("SELECT value FROM facts WHERE name = ?", (LEDGER,)).fetchone()
    return Ledger() if row is None else msgspec.json.decode(row[0], type=Ledger)


def put_ledger(connection: sqlite3.Connection, value: Ledger) -> None:
    """Write what is remembered."""
    connection.execute(
        "INSERT INTO facts (name, value) VALUES (?, ?)"
        " ON CONFLICT (name) DO UPDATE SET value = excluded.value",
        (LEDGER, msgspec.json.encode(value)),
    )


def prune(connection: sqlite3.Connection, now: float) -> None:
    """Remove what ended long ago."""
    connection.execute(
        "DELETE FROM isolations WHERE created < ? AND state NOT IN"
        " ('waiting', 'refused', 'isolated', 'testing', 'kept', 'watched')",
        (now - KEEP_SECONDS,),
    )


def _decoded(record: bytes) -> Isolation:
    return msgspec.json.decode(record, type=Isolation)
