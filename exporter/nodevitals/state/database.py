"""The SQLite file in the state directory: the history, counters of this boot, and probe states.

In and out: the records of `journal.py`. One process writes, the history's worker; commands read,
and `history forget` adds rows. Functions that take a connection raise sqlite3.Error.
"""

from __future__ import annotations

import json
import os
import sqlite3
from collections.abc import Iterable, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import msgspec

from nodevitals.state.journal import FORGOTTEN, Row, SavedState, Total

FILE_NAME = "history.db"
BUSY_SECONDS = 5.0
_SCHEMA = """
CREATE TABLE IF NOT EXISTS history (
    id INTEGER PRIMARY KEY, time REAL NOT NULL, probe TEXT NOT NULL, device TEXT NOT NULL,
    state TEXT NOT NULL, detail TEXT NOT NULL);
CREATE INDEX IF NOT EXISTS history_device ON history (probe, device, id);
CREATE TABLE IF NOT EXISTS totals (
    boot_id TEXT NOT NULL, probe TEXT NOT NULL, target TEXT NOT NULL, part TEXT NOT NULL,
    family TEXT NOT NULL, labels TEXT NOT NULL, value REAL NOT NULL,
    PRIMARY KEY (boot_id, probe, target, part, family, labels)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS states (
    probe TEXT NOT NULL, target TEXT NOT NULL, state BLOB NOT NULL,
    PRIMARY KEY (probe, target)) WITHOUT ROWID;
"""
_LATEST = "SELECT max(id) FROM history GROUP BY probe, device"


def connect(directory: str) -> sqlite3.Connection:
    """Open the database of a state directory for writing; create both where they are missing.

    Raises sqlite3.Error and OSError.
    """
    os.makedirs(directory, mode=0o755, exist_ok=True)
    connection = sqlite3.connect(Path(directory, FILE_NAME), timeout=BUSY_SECONDS)
    connection.execute("PRAGMA journal_mode = WAL")
    # Survives kill -9; a power loss may lose the last rows, but does not damage the file.
    # https://www.sqlite.org/pragma.html#pragma_synchronous
    connection.execute("PRAGMA synchronous = NORMAL")
    connection.executescript(_SCHEMA)
    return connection


def append(connection: sqlite3.Connection, rows: Iterable[Row]) -> None:
    """Add rows to the history, within the caller's transaction."""
    connection.executemany(
        "INSERT INTO history (time, probe, device, state, detail) VALUES (?, ?, ?, ?, ?)",
        [msgspec.structs.astuple(row) for row in rows],
    )


def save_totals(connection: sqlite3.Connection, boot_id: str, totals: Iterable[Total]) -> None:
    """Replace counters of this boot, within the caller's transaction."""
    connection.executemany(
        "INSERT OR REPLACE INTO totals VALUES (?, ?, ?, ?, ?, ?, ?)",
        [
            (boot_id, t.probe, t.target, t.part, t.family, json.dumps(t.labels), t.value)
            for t in totals
        ],
    )


def load_totals(connection: sqlite3.Connection, boot_id: str) -> tuple[Total, ...]:
    """The counters of this boot; remove those of other boots."""
    connection.execute("DELETE FROM totals WHERE boot_id != ?", (boot_id,))
    rows = connection.execute("SELECT probe, target, part, family, labels, value FROM totals")
    return tuple(
        Total(probe, target, part, family, tuple(json.loads(labels)), value)
        for probe, target, part, family, labels, value in rows
    )


def save_states(connection: sqlite3.Connection, states: Iterable[SavedState]) -> None:
    """Replace the states of targets, within the caller's transaction."""
    connection.executemany(
        "INSERT OR REPLACE INTO states VALUES (?, ?, ?)",
        [msgspec.structs.astuple(saved) for saved in states],
    )


def load_states(connection: sqlite3.Connection) -> tuple[SavedState, ...]:
    """The states of all targets, of any boot."""
    rows = connection.execute("SELECT probe, target, state FROM states")
    return tuple(SavedState(*row) for row in rows)


def latest(connection: sqlite3.Connection) -> tuple[Row, ...]:
    """The last row of each device."""
    return tuple(
        Row(*row)
        for row in connection.execute(
            f"SELECT time, probe, device, state, detail FROM history WHERE id IN ({_LATEST})"
        )
    )


def query(
    connection: sqlite3.Connection, since: float = 0.0, device: str | None = None
) -> list[Row]:
    """Rows since a time (seconds since the epoch), oldest first; of one device where given."""
    return [
        Row(*row)
        for row in connection.execute(
            "SELECT time, probe, device, state, detail FROM history"
            " WHERE time >= ? AND (? IS NULL OR device = ?) ORDER BY id",
            (since, device, device),
        )
    ]


def forget(connection: sqlite3.Connection, device: str, now: float) -> list[str]:
    """Retire a device, in a transaction of its own. Returns the probes that reported it, if any."""
    probes = [row.probe for row in latest(connection) if row.device == device]
    with connection:
        append(connection, [Row(now, probe, device, FORGOTTEN) for probe in probes])
    return probes


def prune(connection: sqlite3.Connection, oldest: float, max_rows: int) -> None:
    """Remove rows older than `oldest` or beyond the newest `max_rows`, but never the last row of
    a device.
    """
    connection.execute(f"DELETE FROM history WHERE time < ? AND id NOT IN ({_LATEST})", (oldest,))
    connection.execute(
        "DELETE FROM history WHERE id <= (SELECT id FROM history ORDER BY id DESC"
        f" LIMIT 1 OFFSET ?) AND id NOT IN ({_LATEST})",
        (max_rows,),
    )


def forgotten_since(connection: sqlite3.Connection, last: int) -> tuple[tuple[str, str], ...]:
    """Probe and device of each retirement with a row id above `last`."""
    rows = connection.execute(
        "SELECT probe, device FROM history WHERE id > ? AND state = ?", (last, FORGOTTEN)
    )
    return tuple((probe, device) for probe, device in rows)


def row_count(connection: sqlite3.Connection) -> int:
    """Number of rows in the history."""
    count: int = connection.execute("SELECT count(*) FROM history").fetchone()[0]
    return count


def last_id(connection: sqlite3.Connection) -> int:
    """The id of the newest row; 0 where there is none."""
    last: int = connection.execute("SELECT coalesce(max(id), 0) FROM history").fetchone()[0]
    return last


def data_version(connection: sqlite3.Connection) -> int:
    """A number that changes when another connection has written."""
    version: int = connection.execute("PRAGMA data_version").fetchone()[0]
    return version


def is_corrupt(error: sqlite3.Error) -> bool:
    """Whether the file is damaged, or is not a database."""
    # sqlite_errorcode exists since Python 3.11; the texts are SQLite's own.
    return any(text in str(error) for text in ("not a database", "malformed", "corrupt"))


def open_for_reading(directory: str) -> closing[sqlite3.Connection]:
    """Open the database for a command, read-only. Raises sqlite3.Error where there is none."""
    uri = Path(directory, FILE_NAME).absolute().as_uri() + "?mode=ro"
    return closing(sqlite3.connect(uri, uri=True, timeout=BUSY_SECONDS))


def as_records(rows: Sequence[Row]) -> list[dict[str, Any]]:
    """Rows for --json and --csv."""
    return [msgspec.structs.asdict(row) for row in rows]
