"""The tables of the hub's SQLite file, and the statements on them.

Functions raise sqlite3.Error. `sequence` orders the checks, not their time: clocks jump.
"""

from __future__ import annotations

import hashlib
import sqlite3
from collections.abc import Sequence
from pathlib import Path

import msgspec

from nodevitals.checks.model import Check
from nodevitals_hub.store import sound_files

FILE_NAME = "hub.db"
BUSY_SECONDS = 5.0
ERRORS = sound_files.ERRORS
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
    # Survives kill -9. A power loss may lose the last rows, and an agent refuses a second order
    # of the same id. https://www.sqlite.org/pragma.html#pragma_synchronous
    sound_files.create(connection, MIGRATIONS, "NORMAL")
    return connection


def open_sound(path: Path) -> tuple[sqlite3.Connection, str]:
    """Open the file; set a damaged one aside. Returns what was lost, in one line, or ''."""
    return sound_files.open_sound(path, connect)


_NAMES = "id, key, created, kind, phase, outcome, likeness, nodes, record"
_COLUMNS = f"({_NAMES})"
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
    """Equal for checks whose figures can be compared: kind, nodes, test."""
    request = check.request
    same = (request.kind, sorted(request.nodes), request.test, request.rounds)
    return hashlib.sha256(msgspec.json.encode(same)).hexdigest()[:32]


def unfinished(connection: sqlite3.Connection) -> list[bytes]:
    """The records of checks that have not ended, oldest first."""
    return _records(connection, "WHERE phase IN (?, ?) ORDER BY sequence", _OPEN)


def _records(connection: sqlite3.Connection, rest: str, values: Sequence[object]) -> list[bytes]:
    return [row[0] for row in connection.execute(f"SELECT record FROM checks {rest}", values)]


def select(
    connection: sqlite3.Connection, limit: int, before: str, kind: str, node: str, outcome: str
) -> list[bytes]:
    """The records of the newest checks first."""
    conditions: list[str] = ["1"]
    values: list[object] = []
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


def last_like(connection: sqlite3.Connection, check: Check, outcome: str, most: int) -> list[bytes]:
    """The records of the last other like checks with an outcome."""
    rest = "WHERE likeness = ? AND outcome = ? AND id != ? ORDER BY sequence DESC LIMIT ?"
    return _records(connection, rest, (likeness(check), outcome, check.id, most))


def earlier(connection: sqlite3.Connection, check: Check, likes: int, others: int) -> list[bytes]:
    """The records of the last earlier checks that are alike, then of those of the same kind."""
    rest = (
        "phase = 'done' AND sequence < (SELECT sequence FROM checks WHERE id = ?)"
        " ORDER BY sequence DESC LIMIT ?"
    )
    alike = _records(
        connection, f"WHERE likeness = ? AND {rest}", (likeness(check), check.id, likes)
    )
    same_kind = _records(
        connection, f"WHERE kind = ? AND {rest}", (check.request.kind, check.id, others)
    )
    return [*alike, *same_kind]


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
