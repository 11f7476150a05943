"""The tables of the hub's SQLite file, and the statements on them.

Functions raise sqlite3.Error. `sequence` orders the checks, not their time: clocks jump.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any, Optional

import msgspec

from nodevitals.checks.model import Check

FILE_NAME = "hub.db"
BUSY_SECONDS = 5.0
ERRORS = (sqlite3.Error, UnicodeDecodeError, MemoryError)
# One entry per version of the file; `user_version` counts those that were executed.
MIGRATIONS = (
    """
    CREATE TABLE checks (
        sequence INTEGER PRIMARY KEY AUTOINCREMENT, id TEXT NOT NULL UNIQUE, key TEXT UNIQUE,
        created REAL NOT NULL, kind TEXT NOT NULL, phase TEXT NOT NULL, outcome TEXT NOT NULL,
        likeness TEXT NOT NULL, nodes TEXT NOT NULL, record BLOB NOT NULL);
    CREATE INDEX checks_phase ON checks (phase, sequence);
    CREATE INDEX checks_likeness ON checks (likeness, sequence);
    CREATE TABLE runs (
        check_id TEXT NOT NULL, number INTEGER NOT NULL, name TEXT, time REAL, result BLOB,
        PRIMARY KEY (check_id, number)) WITHOUT ROWID;
    CREATE TABLE results (id TEXT PRIMARY KEY, blob BLOB NOT NULL);
    """,
    """
    CREATE TABLE schedules (name TEXT PRIMARY KEY, record BLOB NOT NULL) WITHOUT ROWID;
    """,
)
_OPEN = ("queued", "running")


def connect(path: Path) -> sqlite3.Connection:
    """Open the file for writing, and bring its tables to this version."""
    connection = sqlite3.connect(path, timeout=BUSY_SECONDS, check_same_thread=False)
    try:
        [version] = connection.execute("PRAGMA user_version").fetchone()
        if version > len(MIGRATIONS):
            raise sqlite3.NotSupportedError(f"written by a newer version (its tables: {version})")
        connection.execute("PRAGMA journal_mode = WAL")
        # Survives kill -9. A power loss may lose the last rows, and an agent refuses a second order
        # of the same id. https://www.sqlite.org/pragma.html#pragma_synchronous
        connection.execute("PRAGMA synchronous = NORMAL")
        for number, script in enumerate(MIGRATIONS[version:], version + 1):
            connection.executescript(f"BEGIN; {script} PRAGMA user_version = {number}; COMMIT;")
    except BaseException:
        connection.close()
        raise
    return connection


def open_sound(path: Path) -> tuple[sqlite3.Connection, str]:
    """Open the file; a damaged one is set aside as `.corrupt`, and a new one begins with what can
    still be read. Returns what was lost, in one line, or ''.
    """
    try:
        connection = connect(path)
        [answer] = connection.execute("PRAGMA quick_check(1)").fetchone()
        if answer == "ok":
            return connection, ""
        connection.close()
        found = " ".join(str(answer).split())
    except sqlite3.OperationalError:
        raise  # the disk or its permissions, not the file
    except sqlite3.NotSupportedError:
        raise
    except ERRORS as error:
        found = " ".join(str(error).split())
    aside = path.with_suffix(".db.corrupt")
    with contextlib.suppress(FileNotFoundError):
        os.replace(path, aside)
    for suffix in ("-wal", "-shm"):
        Path(f"{path}{suffix}").unlink(missing_ok=True)
    connection = connect(path)
    kept = _salvage(aside, connection)
    return connection, f"{path} is damaged ({found}); {kept} checks were kept, it is now {aside}"


def _salvage(source: Path, target: sqlite3.Connection) -> int:
    """Copy the ended checks that can be read."""
    kept = 0
    with contextlib.suppress(*ERRORS), closing(sqlite3.connect(source)) as old, target:
        for row in old.execute(
            "SELECT c.id, c.key, c.created, c.kind, c.phase, c.outcome, c.likeness, c.nodes,"
            " c.record, r.blob FROM checks c JOIN results r ON r.id = c.id ORDER BY c.sequence"
        ):
            with contextlib.suppress(sqlite3.Error):
                target.execute(f"INSERT INTO checks {_COLUMNS} VALUES ({_MARKS})", row[:9])
                target.execute("INSERT INTO results VALUES (?, ?)", (row[0], row[9]))
                kept += 1
    return kept


_COLUMNS = "(id, key, created, kind, phase, outcome, likeness, nodes, record)"
_MARKS = ", ".join("?" * 9)


def insert_check(connection: sqlite3.Connection, check: Check, record: bytes, key: str) -> None:
    """Add a check, within the caller's transaction."""
    nodes = f" {' '.join(check.request.nodes)} "
    values = (check.id, key or None, check.created, check.request.kind, *_state(check))
    connection.execute(
        f"INSERT INTO checks {_COLUMNS} VALUES ({_MARKS})",
        (*values, likeness(check), nodes, record),
    )


def update_check(connection: sqlite3.Connection, check: Check, record: bytes) -> bool:
    """Replace the record of a check that has not ended; False where it has."""
    changed = connection.execute(
        "UPDATE checks SET phase = ?, outcome = ?, record = ? WHERE id = ? AND phase IN (?, ?)",
        (*_state(check), record, check.id, *_OPEN),
    )
    return changed.rowcount == 1


def _state(check: Check) -> tuple[str, str]:
    return check.phase, check.verdict.outcome if check.verdict else ""


def likeness(check: Check) -> str:
    """The same for checks whose figures can be compared: kind, nodes, test."""
    request = check.request
    same = (request.kind, sorted(request.nodes), request.test, request.rounds)
    return hashlib.sha256(msgspec.json.encode(same)).hexdigest()[:32]


def unfinished(connection: sqlite3.Connection) -> list[bytes]:
    """The records of checks that have not ended, oldest first."""
    return _records(connection, "WHERE phase IN (?, ?) ORDER BY sequence", _OPEN)


def _records(connection: sqlite3.Connection, rest: str, values: tuple[Any, ...]) -> list[bytes]:
    return [row[0] for row in connection.execute(f"SELECT record FROM checks {rest}", values)]


def select(
    connection: sqlite3.Connection, limit: int, before: str, kind: str, node: str, outcome: str
) -> list[bytes]:
    """The records of the newest checks first."""
    conditions: list[str] = ["1"]
    values: list[Any] = []
    for given, condition in (
        (before, "sequence < (SELECT sequence FROM checks WHERE id = ?)"),
        (kind, "kind = ?"),
        (outcome, "outcome = ?"),
        (node and f" {node} ", "instr(nodes, ?)"),
    ):
        if given:
            conditions.append(condition)
            values.append(given)
    rest = f"WHERE {' AND '.join(conditions)} ORDER BY sequence DESC LIMIT ?"
    return _records(connection, rest, (*values, limit))


def last_like(connection: sqlite3.Connection, check: Check) -> Optional[bytes]:
    """The record of the last like check that was ok, but this one."""
    rest = "WHERE likeness = ? AND outcome = 'ok' AND id != ? ORDER BY sequence DESC LIMIT 1"
    return next(iter(_records(connection, rest, (likeness(check), check.id))), None)


def prune(connection: sqlite3.Connection, oldest: float, most: int) -> int:
    """Remove ended checks that are old or too many, within the caller's transaction."""
    before = connection.total_changes
    connection.execute(
        "DELETE FROM checks WHERE phase NOT IN (?, ?) AND (created < ? OR sequence <="
        " (SELECT sequence FROM checks ORDER BY sequence DESC LIMIT 1 OFFSET ?))",
        (*_OPEN, oldest, most),
    )
    removed = connection.total_changes - before
    if removed:
        connection.execute("DELETE FROM results WHERE id NOT IN (SELECT id FROM checks)")
    return removed
