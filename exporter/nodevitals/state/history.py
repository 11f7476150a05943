"""What happened, when, to which device: one SQLite table in the state directory, one writer.

The writer is a resident worker of the agent's; commands read the file, and `forget` adds a row.
Beside the history stand the agent's counters of this boot, so that they outlive a restart, and
what the runs of probes that remember have left, so that it outlives a boot too.
"""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import time
from collections.abc import Iterable, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import msgspec

from nodevitals.probe import Families, Probe, ProbeError, ProbeSettings, Readings
from nodevitals.state.journal import FORGOTTEN, Batch, Reply, Row, SavedState, Total

FILE_NAME = "history.db"
BUSY_SECONDS = 5.0
PRUNE_EVERY_ROWS = 100
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

metrics = Families("history")
ROWS = metrics.gauge("rows", "Number of rows in the history.")


def connect(directory: str) -> sqlite3.Connection:
    """The history of a state directory, for writing; made where it is missing.

    Raises sqlite3.Error and OSError.
    """
    os.makedirs(directory, mode=0o755, exist_ok=True)
    connection = sqlite3.connect(Path(directory, FILE_NAME), timeout=BUSY_SECONDS)
    connection.execute("PRAGMA journal_mode = WAL")
    # Survives kill -9 of everything; only power loss may take the last rows, never the file.
    connection.execute("PRAGMA synchronous = NORMAL")
    connection.executescript(_SCHEMA)
    return connection


def append(connection: sqlite3.Connection, rows: Iterable[Row]) -> None:
    """Add rows, within the caller's transaction."""
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
    """The counters of this boot; those of other boots are removed."""
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
    """The last row of every device."""
    return tuple(
        Row(*row)
        for row in connection.execute(
            f"SELECT time, probe, device, state, detail FROM history WHERE id IN ({_LATEST})"
        )
    )


def query(
    connection: sqlite3.Connection, since: float = 0.0, device: str | None = None
) -> list[Row]:
    """Rows from a time on (seconds since the epoch), oldest first; of one device when named."""
    return [
        Row(*row)
        for row in connection.execute(
            "SELECT time, probe, device, state, detail FROM history"
            " WHERE time >= ? AND (? IS NULL OR device = ?) ORDER BY id",
            (since, device, device),
        )
    ]


def forget(connection: sqlite3.Connection, device: str, now: float) -> list[str]:
    """Retire a device: from now on it is not known. The probes that knew it; none: unknown."""
    probes = [row.probe for row in latest(connection) if row.device == device]
    with connection:
        append(connection, [Row(now, probe, device, FORGOTTEN) for probe in probes])
    return probes


def prune(connection: sqlite3.Connection, oldest: float, max_rows: int) -> None:
    """Remove rows older than `oldest` and over `max_rows`, but never a device's last row."""
    connection.execute(f"DELETE FROM history WHERE time < ? AND id NOT IN ({_LATEST})", (oldest,))
    connection.execute(
        "DELETE FROM history WHERE id <= (SELECT id FROM history ORDER BY id DESC"
        f" LIMIT 1 OFFSET ?) AND id NOT IN ({_LATEST})",
        (max_rows,),
    )


class HistoryProbeSettings(ProbeSettings, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Where the history lies and how much of it is kept."""

    state_directory: str = ""
    max_age: float = 0.0
    max_rows: int = 0


class HistoryProbe(Probe):
    """The one writer, run as any resident worker: with a deadline, and killed when it hangs.

    Its state is a Batch on the way in and a Reply on the way out.
    """

    name = "history"
    families = metrics
    Settings = HistoryProbeSettings
    State = Batch
    resident = True
    settings: HistoryProbeSettings
    state: Batch | Reply

    def open(self) -> None:
        """Let the end of the channel be our end."""
        # On the agent's end the fork server terminates us, but batches may still be in the pipe;
        # the end of the channel is what ends us, and KILL after a second.
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        self._path = Path(self.settings.state_directory, FILE_NAME)
        self._database: sqlite3.Connection | None = None

    @property
    def _connection(self) -> sqlite3.Connection:
        """The open database. One that is damaged is moved aside, one that somebody removed is
        left alone: writes to it would succeed and be lost. Either way a new one is opened.
        """
        if self._database is not None and _identity(self._path) != self._opened_file:
            self._database.close()
            self._database = None
        if self._database is None:
            self._database = self._connect()
        return self._database

    def _connect(self) -> sqlite3.Connection:
        try:
            connection = connect(self.settings.state_directory)
        except OSError as error:
            raise ProbeError(
                "state_directory",
                f"{self.settings.state_directory}: {error.strerror}; history and counters will "
                "not outlive a restart",
            ) from None
        self._changed_elsewhere = _data_version(connection)
        self._seen = _last_id(connection)
        self._unpruned = PRUNE_EVERY_ROWS
        self._opened_file = _identity(self._path)
        self._just_opened = True
        return connection

    def run(self, readings: Readings) -> None:
        """Write one batch in one transaction."""
        batch, self.state = self.state, Reply()
        assert isinstance(batch, Batch)
        try:
            connection = self._connection
            with connection:
                reply = Reply(forgotten=self._forgotten(), opened=self._just_opened)
                if batch.load:
                    reply = Reply(
                        totals=load_totals(connection, batch.boot_id),
                        states=load_states(connection),
                        latest=latest(connection),
                    )
                append(connection, batch.rows)
                save_totals(connection, batch.boot_id, batch.totals)
                save_states(connection, batch.states)
                self._prune(len(batch.rows))
                count = connection.execute("SELECT count(*) FROM history").fetchone()[0]
            self._seen = _last_id(connection)
            self._just_opened = False
        except sqlite3.Error as error:
            raise self._failure(error) from None
        readings.add(ROWS, count)
        self.state = reply

    def close(self) -> None:
        """Fold the write-ahead log back into the file."""
        if self._database is not None:
            self._database.close()

    def _prune(self, added: int) -> None:
        self._unpruned += added
        if self._unpruned >= PRUNE_EVERY_ROWS:
            prune(self._connection, time.time() - self.settings.max_age, self.settings.max_rows)
            self._unpruned = 0

    def _forgotten(self) -> tuple[tuple[str, str], ...]:
        """What a `history forget` beside us has retired since the last look."""
        version = _data_version(self._connection)
        if version == self._changed_elsewhere:
            return ()
        self._changed_elsewhere = version
        rows = self._connection.execute(
            "SELECT probe, device FROM history WHERE id > ? AND state = ?", (self._seen, FORGOTTEN)
        )
        return tuple((probe, device) for probe, device in rows)

    def _failure(self, error: sqlite3.Error) -> ProbeError:
        path = self._path
        if self._database is not None:
            self._database.close()
            self._database = None
        if _is_corrupt(error):
            aside = path.with_suffix(".db.corrupt")
            for suffix in ("-wal", "-shm"):
                Path(f"{path}{suffix}").unlink(missing_ok=True)
            path.replace(aside)
            return ProbeError("corrupt", f"{path} is damaged ({error}); moved to {aside}")
        reason = "disk_full" if "full" in str(error) else "state_directory"
        return ProbeError(reason, f"{path}: {error}")


def _identity(path: Path) -> tuple[int, int] | None:
    """Which file a path leads to; None where it leads nowhere."""
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_dev, status.st_ino


def _data_version(connection: sqlite3.Connection) -> int:
    """Changes when another connection has written."""
    version: int = connection.execute("PRAGMA data_version").fetchone()[0]
    return version


def _last_id(connection: sqlite3.Connection) -> int:
    last: int = connection.execute("SELECT coalesce(max(id), 0) FROM history").fetchone()[0]
    return last


def _is_corrupt(error: sqlite3.Error) -> bool:
    # Error codes came to the module with Python 3.11; the texts are SQLite's own.
    return any(text in str(error) for text in ("not a database", "malformed", "corrupt"))


def open_for_reading(directory: str) -> closing[sqlite3.Connection]:
    """The history for a command, read-only. Raises sqlite3.Error when there is none."""
    uri = Path(directory, FILE_NAME).absolute().as_uri() + "?mode=ro"
    return closing(sqlite3.connect(uri, uri=True, timeout=BUSY_SECONDS))


def as_records(rows: Sequence[Row]) -> list[dict[str, Any]]:
    """Rows for --json and --csv."""
    return [msgspec.structs.asdict(row) for row in rows]
