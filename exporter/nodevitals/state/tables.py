"""Opens the SQLite file in the state directory, and decides whether it is damaged.

SQLite notices damage to its structure, not a changed bit in a value. Functions that take a
connection raise sqlite3.Error.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterable
from contextlib import closing
from pathlib import Path
from typing import Any

import msgspec

FILE_NAME = "history.db"
BUSY_SECONDS = 5.0
# Checking a larger file, which needs a raised `max_rows`, would take longer than the deadline: only
# the used parts of its history are checked, when they are used.
MAX_CHECKED_BYTES = 64 * 1024 * 1024

TABLES = {
    "totals": ("boot_id", "probe", "target", "part", "family", "labels", "value"),
    "states": ("probe", "target", "state"),
    "reference": ("boot_id", "since_boot", "time"),
    "history": ("id", "time", "probe", "device", "state", "detail"),
}
_SCHEMA = """
CREATE TABLE history (
    id INTEGER PRIMARY KEY, time REAL NOT NULL, probe TEXT NOT NULL, device TEXT NOT NULL,
    state TEXT NOT NULL, detail TEXT NOT NULL);
CREATE INDEX history_device ON history (probe, device, id);
CREATE TABLE totals (
    boot_id TEXT NOT NULL, probe TEXT NOT NULL, target TEXT NOT NULL, part TEXT NOT NULL,
    family TEXT NOT NULL, labels TEXT NOT NULL, value REAL NOT NULL,
    PRIMARY KEY (boot_id, probe, target, part, family, labels)) WITHOUT ROWID;
CREATE TABLE states (
    probe TEXT NOT NULL, target TEXT NOT NULL, state BLOB NOT NULL,
    PRIMARY KEY (probe, target)) WITHOUT ROWID;
CREATE TABLE reference (boot_id TEXT NOT NULL, since_boot REAL NOT NULL, time REAL NOT NULL);
"""
# Exceptions by a damaged file: besides SQLite's own, for a text with invalid bytes, a wrong size in
# a changed header, and a row that does not fit its record.
ERRORS = (sqlite3.Error, UnicodeDecodeError, MemoryError, msgspec.MsgspecError)
# Failures of the disk or by another process: the file is not damaged.
_OTHER_FAILURES = ("locked", "disk I/O", "is full", "unable to open", "interrupted")


def connect(directory: str) -> sqlite3.Connection:
    """Open the database of a state directory for writing; create both where they are missing.

    Raises those of ERRORS and OSError.
    """
    os.makedirs(directory, mode=0o755, exist_ok=True)
    path = Path(directory, FILE_NAME)
    connection = sqlite3.connect(path, timeout=BUSY_SECONDS)
    try:
        connection.execute("PRAGMA journal_mode = WAL")
        # The file survives kill -9; a power loss may lose the last rows, but damages nothing.
        # https://www.sqlite.org/pragma.html#pragma_synchronous
        connection.execute("PRAGMA synchronous = NORMAL")
        _check_structure(connection, path)
        _bring_to_this_version(connection)
        # Fails where the file cannot be written: a damaged version number makes it read-only.
        connection.executescript("BEGIN; DELETE FROM reference WHERE 0; ROLLBACK;")
    except BaseException:
        connection.close()
        raise
    return connection


def open_for_reading(directory: str) -> closing[sqlite3.Connection]:
    """Open the database for a command, read-only. Raises sqlite3.Error where there is none."""
    uri = Path(directory, FILE_NAME).absolute().as_uri() + "?mode=ro"
    connection = sqlite3.connect(uri, uri=True, timeout=BUSY_SECONDS)
    # One damaged text must not hide the others.
    connection.text_factory = lambda text: text.decode("utf-8", "replace")
    return closing(connection)


def _check_structure(connection: sqlite3.Connection, path: Path) -> None:
    size = path.stat().st_size
    if size % connection.execute("PRAGMA page_size").fetchone()[0]:
        raise sqlite3.DatabaseError("its last page is cut")
    if size <= MAX_CHECKED_BYTES:
        [answer] = connection.execute("PRAGMA integrity_check").fetchone()
        if answer != "ok":
            raise sqlite3.DatabaseError(str(answer))


def _bring_to_this_version(connection: sqlite3.Connection) -> None:
    """Create the tables that are missing; copy those whose columns are another version's."""
    rows = connection.execute("SELECT name, sql FROM sqlite_master").fetchall()
    present = {name: sql for name, sql in rows if not name.startswith("sqlite_")}
    with closing(sqlite3.connect(":memory:")) as empty:
        empty.executescript(_SCHEMA)
        if dict(empty.execute("SELECT name, sql FROM sqlite_master")).items() <= present.items():
            return
    earlier = [name for name in TABLES if name in present]
    script = "".join(f"ALTER TABLE {name} RENAME TO earlier_{name};" for name in earlier)
    script += "DROP INDEX IF EXISTS history_device;" + _SCHEMA
    for name in earlier:
        columns = ", ".join(TABLES[name])
        script += f"INSERT INTO {name} ({columns}) SELECT {columns} FROM earlier_{name};"
        script += f"DROP TABLE earlier_{name};"
    connection.executescript(f"BEGIN; {script} COMMIT;")


def insert(connection: sqlite3.Connection, table: str, rows: Iterable[tuple[Any, ...]]) -> None:
    """Add rows, or replace those with the same key, within the caller's transaction. A row of the
    history comes without its id.
    """
    columns = [name for name in TABLES[table] if name != "id"]
    marks = ", ".join("?" * len(columns))
    connection.executemany(
        f"INSERT OR REPLACE INTO {table} ({', '.join(columns)}) VALUES ({marks})", rows
    )


def is_damage(error: Exception, path: Path) -> bool:
    """Whether one of ERRORS means that the file is damaged, or is no database."""
    # sqlite_errorcode exists since Python 3.11; the texts are SQLite's own.
    if "readonly" in str(error):  # also raised for a damaged version number in the header
        return os.access(path, os.W_OK) and os.access(path.parent, os.W_OK)
    return not any(text in str(error) for text in _OTHER_FAILURES)
