"""The history's worker: the only process of the agent that writes to the database.

In: a Batch of rows, counters and states. Out: a Reply, and the number of rows of the history.
"""

from __future__ import annotations

import signal
import sqlite3
import time
from pathlib import Path

from nodevitals.probe import Families, Probe, ProbeError, ProbeSettings, Readings
from nodevitals.state import database
from nodevitals.state.journal import Batch, Reply

PRUNE_EVERY_ROWS = 100

metrics = Families("history")
ROWS = metrics.gauge("rows", "Number of rows in the history.")


class HistoryProbeSettings(ProbeSettings, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Where the database is and how many rows it keeps."""

    state_directory: str = ""
    """Directory of the database."""
    max_age: float = 0.0
    """Age in seconds above which rows are removed."""
    max_rows: int = 0
    """Number of rows above which the oldest are removed."""


class HistoryProbe(Probe):
    """Writes batches. It runs like any resident worker: with a deadline, and killed if it hangs.

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
        """Prepare to open the database with the first run; ignore SIGTERM."""
        # When the agent stops, the fork server sends SIGTERM, but batches may still be in the
        # pipe. The worker ends at the end of the channel, or with SIGKILL after a second.
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        self._path = Path(self.settings.state_directory, database.FILE_NAME)
        self._opened: sqlite3.Connection | None = None

    @property
    def _connection(self) -> sqlite3.Connection:
        """The open database. A new one is opened where the file was removed or replaced: writes
        to the old one would succeed and be lost.
        """
        if self._opened is not None and _identity(self._path) != self._opened_file:
            self.close()
        if self._opened is None:
            self._opened = self._connect()
        return self._opened

    def _connect(self) -> sqlite3.Connection:
        try:
            connection = database.connect(self.settings.state_directory)
        except OSError as error:
            raise ProbeError(
                "state_directory",
                f"{self.settings.state_directory}: {error.strerror}; history and counters will "
                "not outlive a restart",
            ) from None
        self._known_version = database.data_version(connection)
        self._last_id = database.last_id(connection)
        self._unpruned = PRUNE_EVERY_ROWS
        self._opened_file = _identity(self._path)
        self._just_opened = True
        return connection

    def run(self, readings: Readings) -> None:
        """Write one batch in one transaction."""
        batch = self.state
        assert isinstance(batch, Batch)
        self.state = Reply()
        try:
            connection = self._connection
            with connection:
                reply = self._write(connection, batch)
                rows = database.row_count(connection)
            self._last_id = database.last_id(connection)
            self._just_opened = False
        except sqlite3.Error as error:
            raise self._failure(error) from None
        readings.add(ROWS, rows)
        self.state = reply

    def _write(self, connection: sqlite3.Connection, batch: Batch) -> Reply:
        reply = Reply(forgotten=self._forgotten(connection), opened=self._just_opened)
        if batch.load:
            reply = Reply(
                totals=database.load_totals(connection, batch.boot_id),
                states=database.load_states(connection),
                latest=database.latest(connection),
            )
        database.append(connection, batch.rows)
        database.save_totals(connection, batch.boot_id, batch.totals)
        database.save_states(connection, batch.states)
        self._prune(connection, len(batch.rows))
        return reply

    def close(self) -> None:
        """Close the database, which merges the write-ahead log into the file."""
        if self._opened is not None:
            self._opened.close()
            self._opened = None

    def _prune(self, connection: sqlite3.Connection, added: int) -> None:
        self._unpruned += added
        if self._unpruned >= PRUNE_EVERY_ROWS:
            oldest = time.time() - self.settings.max_age
            database.prune(connection, oldest, self.settings.max_rows)
            self._unpruned = 0

    def _forgotten(self, connection: sqlite3.Connection) -> tuple[tuple[str, str], ...]:
        """The devices that `history forget` has retired since the last run, with their probes."""
        version = database.data_version(connection)
        if version == self._known_version:
            return ()
        self._known_version = version
        return database.forgotten_since(connection, self._last_id)

    def _failure(self, error: sqlite3.Error) -> ProbeError:
        path = self._path
        self.close()
        if database.is_corrupt(error):
            aside = path.with_suffix(".db.corrupt")
            for suffix in ("-wal", "-shm"):
                Path(f"{path}{suffix}").unlink(missing_ok=True)
            path.replace(aside)
            return ProbeError("corrupt", f"{path} is damaged ({error}); moved to {aside}")
        reason = "disk_full" if "full" in str(error) else "state_directory"
        return ProbeError(reason, f"{path}: {error}")


def _identity(path: Path) -> tuple[int, int] | None:
    """Device and inode of a file; None where there is none."""
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_dev, status.st_ino
