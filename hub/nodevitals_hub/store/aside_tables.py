"""Statements on the table `aside`: unusable records are moved there, so that they block no other.

Functions of a connection, within the caller's transaction. In: rows with a column `record`. Out:
the decoded records; rows that cannot be decoded are moved to the table, and logged.
"""

from __future__ import annotations

import logging
import sqlite3
import time
from collections.abc import Callable, Sequence
from typing import Any, Literal, NamedTuple, TypeVar, get_args

import msgspec

Kind = Literal["file", "message", "delivery", "incident", "drill", "isolation", "repair", "fact"]
KINDS: tuple[Kind, ...] = get_args(Kind)
KEEP_SECONDS = 30 * 86400.0
KEEP_MOST = 1000
ERRORS = (msgspec.MsgspecError, ValueError, TypeError, RecursionError)
_TABLES: dict[Kind, str] = {
    "delivery": "deliveries",
    "incident": "incidents",
    "drill": "drills",
    "isolation": "isolations",
    "repair": "repairs",
}
Record = TypeVar("Record")

log = logging.getLogger(__name__)


class Aside(NamedTuple):
    """The records of a kind that were set aside."""

    kind: Kind
    number: int
    newest: float
    """When the last record was set aside (seconds since the epoch)."""


def read(
    connection: sqlite3.Connection,
    kind: Kind,
    rest: str,
    values: Sequence[object],
    decode: Callable[[bytes], Record],
    contains: bytes = b"",
    instead: Callable[[sqlite3.Connection, int], None] | None = None,
) -> list[Record]:
    """The records that a statement selects and that contain some bytes. `instead` removes a record
    that cannot be decoded, by its rowid, and may write another one, which is then read.
    """
    table = _TABLES[kind]
    select = f"SELECT rowid, id, record FROM {table} {rest}"
    while True:
        records: list[Record] = []
        bad: list[tuple[int, str, Any]] = []
        for number, name, record in connection.execute(select, values):
            try:
                if contains in record:
                    records.append(decode(record))
            except ERRORS:
                bad.append((number, name, record))
        for number, name, record in bad:
            if instead is not None:
                instead(connection, number)
            else:
                connection.execute(f"DELETE FROM {table} WHERE rowid = ?", (number,))
            set_aside(connection, kind, name, record, "cannot be decoded")
        if not bad or instead is None:
            return records


def fact(
    connection: sqlite3.Connection, name: str, decode: Callable[[bytes], Record]
) -> Record | None:
    """The stored value of a name; None where there is none."""
    row = connection.execute("SELECT value FROM facts WHERE name = ?", (name,)).fetchone()
    if row is None:
        return None
    try:
        return decode(row[0])
    except ERRORS:
        connection.execute("DELETE FROM facts WHERE name = ?", (name,))
        set_aside(connection, "fact", name, row[0], "cannot be decoded")
        return None


def set_aside(
    connection: sqlite3.Connection, kind: Kind, name: str, record: object, reason: str
) -> None:
    """Move an unusable record to the table `aside`."""
    connection.execute(
        "INSERT INTO aside (time, kind, name, record) VALUES (?, ?, ?, ?)",
        (time.time(), kind, name, record),
    )
    log.error("%s %s %s: set aside", kind, name, reason)


def counts(connection: sqlite3.Connection) -> tuple[Aside, ...]:
    """The records that are set aside, by kind."""
    rows = connection.execute("SELECT kind, count(*), max(time) FROM aside GROUP BY kind")
    return tuple(Aside(*row) for row in rows)


def prune(connection: sqlite3.Connection, now: float) -> None:
    """Remove what was set aside long ago, and the oldest beyond a number."""
    connection.execute(
        "DELETE FROM aside WHERE time <= ? OR rowid <="
        " (SELECT rowid FROM aside ORDER BY rowid DESC LIMIT 1 OFFSET ?)",
        (now - KEEP_SECONDS, KEEP_MOST),
    )
