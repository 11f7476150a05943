"""The tables of the SQLite file in the state directory, and rows with a checksum.

SQLite notices damage to its structure only, and a counter with a changed bit is worse than none.
Functions that take a connection raise sqlite3.Error.
"""

from __future__ import annotations

import os
import sqlite3
import zlib
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import msgspec

FILE_NAME = "history.db"
BUSY_SECONDS = 5.0
TABLES: dict[str, dict[str, type]] = {
    "totals": {
        **dict.fromkeys(("boot_id", "probe", "target", "part", "family", "labels"), str),
        "value": float,
    },
    "states": {"probe": str, "target": str, "state": bytes},
    "reference": {"boot_id": str, "since_boot": float, "time": float},
    "history": {"time": float, **dict.fromkeys(("probe", "device", "state", "detail"), str)},
}
_SCHEMA = """
CREATE TABLE history (
    id INTEGER PRIMARY KEY, time REAL NOT NULL, probe TEXT NOT NULL, device TEXT NOT NULL,
    state TEXT NOT NULL, detail TEXT NOT NULL, checksum INTEGER NOT NULL);
CREATE INDEX history_device ON history (probe, device, id);
CREATE TABLE totals (
    boot_id TEXT NOT NULL, probe TEXT NOT NULL, target TEXT NOT NULL, part TEXT NOT NULL,
    family TEXT NOT NULL, labels TEXT NOT NULL, value REAL NOT NULL, checksum INTEGER NOT NULL,
    PRIMARY KEY (boot_id, probe, target, part, family, labels)) WITHOUT ROWID;
CREATE TABLE states (
    probe TEXT NOT NULL, target TEXT NOT NULL, state BLOB NOT NULL, checksum INTEGER NOT NULL,
    PRIMARY KEY (probe, target)) WITHOUT ROWID;
CREATE TABLE reference (
    boot_id TEXT NOT NULL, since_boot REAL NOT NULL, time REAL NOT NULL,
    checksum INTEGER NOT NULL);
"""
_encode = msgspec.msgpack.Encoder().encode


# What SQLite raises on a damaged file: also a message with its bytes in it, and the size that a
# changed header claims.
ERRORS = (sqlite3.Error, UnicodeDecodeError, MemoryError)


class LayoutError(sqlite3.DatabaseError):
    """The tables are not those of this version: they are damaged, or another version's."""


def connect(directory: str) -> sqlite3.Connection:
    """Open the database of a state directory for writing; create both where they are missing.

    Raises sqlite3.Error and OSError.
    """
    os.makedirs(directory, mode=0o755, exist_ok=True)
    connection = open_file(Path(directory, FILE_NAME))
    try:
        connection.execute("PRAGMA journal_mode = WAL")
        # Survives kill -9; a power loss may lose the last rows, but does not damage the file.
        # https://www.sqlite.org/pragma.html#pragma_synchronous
        connection.execute("PRAGMA synchronous = NORMAL")
        if not _layout(connection):
            create_tables(connection)
        with closing(sqlite3.connect(":memory:")) as empty:
            create_tables(empty)
            if _layout(connection) != _layout(empty):
                raise LayoutError("its tables are not those of this version")
        # Fails where the file cannot be written: a damaged version number makes it read-only.
        connection.executescript("BEGIN; DELETE FROM reference WHERE 0; ROLLBACK;")
    except BaseException:
        connection.close()
        raise
    return connection


def open_file(path: Path) -> sqlite3.Connection:
    """Open a database file as it is."""
    connection = sqlite3.connect(path, timeout=BUSY_SECONDS)
    connection.text_factory = _text
    return connection


def create_tables(connection: sqlite3.Connection) -> None:
    """Create the tables in an empty database, all or none."""
    connection.executescript(f"BEGIN;{_SCHEMA}COMMIT;")


def _layout(connection: sqlite3.Connection) -> list[tuple[str, str]]:
    return connection.execute("SELECT name, sql FROM sqlite_master ORDER BY name").fetchall()


def _text(raw: bytes) -> str:
    """Text that is damaged must not make its neighbours unreadable; its checksum differs."""
    return raw.decode("utf-8", "replace")


def sealed(*values: Any) -> tuple[Any, ...]:
    """The values of a row, and their checksum."""
    return (*values, zlib.crc32(_encode(values)))


def is_sound(table: str, values: Sequence[Any], checksum: object) -> bool:
    """Whether the values of a row are those that were written."""
    types = TABLES[table].values()
    fit = all(type(value) is kind for value, kind in zip(values, types))
    return fit and checksum == zlib.crc32(_encode(tuple(values)))


def read(
    connection: sqlite3.Connection, table: str, where: str = "", values: Sequence[Any] = ()
) -> list[tuple[Any, ...]]:
    """The sound rows of a table."""
    return [row for row, sound in _checked(connection, table, where, values) if sound]


def count_damaged(connection: sqlite3.Connection, table: str) -> int:
    """Number of rows of a table that are not what was written."""
    return sum(not sound for _, sound in _checked(connection, table))


def _checked(
    connection: sqlite3.Connection, table: str, where: str = "", values: Sequence[Any] = ()
) -> Iterator[tuple[tuple[Any, ...], bool]]:
    """The rows of a table, and whether each is sound."""
    columns = ", ".join(TABLES[table])
    for *row, checksum in connection.execute(
        f"SELECT {columns}, checksum FROM {table} {where}", values
    ):
        yield tuple(row), is_sound(table, row, checksum)


def insert(connection: sqlite3.Connection, table: str, rows: Iterable[tuple[Any, ...]]) -> None:
    """Add rows, or replace those with the same key, within the caller's transaction."""
    columns = (*TABLES[table], "checksum")
    marks = ", ".join("?" * len(columns))
    connection.executemany(
        f"INSERT OR REPLACE INTO {table} ({', '.join(columns)}) VALUES ({marks})",
        (sealed(*row) for row in rows),
    )


def open_for_reading(directory: str) -> closing[sqlite3.Connection]:
    """Open the database for a command, read-only. Raises sqlite3.Error where there is none."""
    uri = Path(directory, FILE_NAME).absolute().as_uri() + "?mode=ro"
    connection = sqlite3.connect(uri, uri=True, timeout=BUSY_SECONDS)
    connection.text_factory = _text
    return closing(connection)
