"""The history's worker: the only process of the agent that writes to the database.

In: a Batch of rows, counters and states. Out: a Reply, and the number of rows of the history.
"""

from __future__ import annotations

import os
import signal
import sqlite3
import time
from collections import deque
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Union

import msgspec

from nodevitals.probe import Families, Probe, ProbeError, ProbeSettings, Readings
from nodevitals.state import damaged_files, database, tables
from nodevitals.state.lock import DirectoryInUseError, DirectoryLock
from nodevitals.state.records import Batch, Reply
from nodevitals.state.reference import Reference, advance, limits
from nodevitals.state.tables import ERRORS, FILE_NAME
from nodevitals.wire import MAX_STATE_BYTES, encode

PRUNE_EVERY_ROWS = 100
# An agent that was killed ends its workers within 2 s.
LOCK_SECONDS = 5.0
PART_BYTES = MAX_STATE_BYTES // 2
_CONSEQUENCE = "history and counters will not outlive a restart"

metrics = Families("history")
ROWS = metrics.gauge("rows", "Number of rows in the history.")
SET_ASIDE = metrics.gauge(
    "set_aside_timestamp_seconds",
    "Time when a damaged database was last renamed and a new one begun; missing where the state"
    " directory has no such file.",
)


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
    state: Union[Batch, Reply]

    def open(self) -> None:
        """Prepare to open the database with the first run; ignore SIGTERM."""
        # When the agent stops, the fork server sends SIGTERM, but batches may still be in the
        # pipe. The worker ends at the end of the channel, or with SIGKILL after a second.
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        self._path = Path(self.settings.state_directory, FILE_NAME)
        self._opened: sqlite3.Connection | None = None
        self._lock: DirectoryLock | None = None
        self._lost = ""
        """What was lost since the last batch that was written, in one line."""
        self._set_aside_time: float | None = None
        self._parts: deque[Reply] = deque()

    def _connection(self, batch: Batch) -> sqlite3.Connection:
        """The open database. A new one is opened where the file was removed or replaced: writes
        to the old one would succeed and be lost.
        """
        if self._opened is not None and not (
            _identity(self._path) == self._opened_file and self._lock and self._lock.holds()
        ):
            self.close()
        if self._opened is None:
            self._opened = self._connect(batch)
        return self._opened

    def _connect(self, batch: Batch) -> sqlite3.Connection:
        directory = self.settings.state_directory
        try:
            os.makedirs(directory, mode=0o755, exist_ok=True)
            if self._lock is None:
                self._lock = DirectoryLock(directory, LOCK_SECONDS if batch.load else 0.0)
            was_empty = self._path.exists() and not self._path.stat().st_size
            connection = tables.connect(directory)
            self._set_aside_time = max(damaged_files.times(self._path), default=None)
        except DirectoryInUseError as error:
            raise ProbeError("in_use", f"{directory}: {error}; {_CONSEQUENCE}") from None
        except OSError as error:
            raise ProbeError(
                "state_directory", f"{directory}: {error.strerror}; {_CONSEQUENCE}"
            ) from None
        if was_empty:
            self._lost = f"{self._path} was empty; history and counters start anew"
        self._known_version = database.data_version(connection)
        self._last_id = database.last_id(connection)
        self._unpruned = PRUNE_EVERY_ROWS
        self._opened_file = _identity(self._path)
        self._just_opened = True
        return connection

    def run(self, readings: Readings) -> None:
        """Write one batch in one transaction. A damaged file is set aside first."""
        batch = self.state
        assert isinstance(batch, Batch)
        self.state = Reply()
        try:
            try:
                reply, rows = self._commit(batch)
            except ERRORS as error:
                if not tables.is_damage(error, self._path):
                    raise
                self._close_file()
                self._lost = damaged_files.set_aside(self._path, str(error) or type(error).__name__)
                reply, rows = self._commit(batch)
        except (*ERRORS, OSError) as error:
            raise self._failure(error) from None
        self._lost = ""
        readings.add(ROWS, rows)
        readings.add(SET_ASIDE, self._set_aside_time)
        self.state = reply

    def _commit(self, batch: Batch) -> tuple[Reply, int]:
        """Write a batch. Returns the reply, and the number of rows of the history."""
        connection = self._connection(batch)
        with connection:
            reply = self._write(connection, batch)
            rows = database.row_count(connection)
        self._last_id = database.last_id(connection)
        self._just_opened = False
        return reply, rows

    def _write(self, connection: sqlite3.Connection, batch: Batch) -> Reply:
        reply = Reply(forgotten=self._forgotten(connection), opened=self._just_opened)
        if batch.load:
            reply = self._loaded(connection, batch.boot_id)
        elif batch.replace:
            database.remove_totals(connection)
        database.append(connection, batch.rows)
        database.save_totals(connection, batch.boot_id, batch.totals)
        database.save_states(connection, batch.states)
        self._prune(connection, batch)
        return msgspec.structs.replace(reply, lost=self._lost)

    def _loaded(self, connection: sqlite3.Connection, boot_id: str) -> Reply:
        """The next part of the data that earlier agents wrote."""
        if not self._parts:
            self._parts.extend(parts_of(connection, boot_id))
        part = self._parts.popleft()
        return msgspec.structs.replace(part, more=bool(self._parts))

    def close(self) -> None:
        """Close the database, which merges the write-ahead log into the file."""
        self._close_file()
        if self._lock is not None:
            self._lock.release()
            self._lock = None

    def _close_file(self) -> None:
        if self._opened is not None:
            self._opened.close()
            self._opened = None

    def _prune(self, connection: sqlite3.Connection, batch: Batch) -> None:
        self._unpruned += len(batch.rows)
        if self._unpruned < PRUNE_EVERY_ROWS:
            return
        self._unpruned = 0
        wall, since_boot = time.time(), time.clock_gettime(time.CLOCK_BOOTTIME)
        last = database.load_reference(connection)
        if last is None:
            newest = database.newest_time(connection, wall)
            last = Reference(batch.boot_id, since_boot, wall if newest is None else newest)
        now = advance(last, batch.boot_id, since_boot, wall)
        database.save_reference(connection, now)
        oldest, newest = limits(now, wall, self.settings.max_age)
        database.prune(connection, oldest, self.settings.max_rows, newest)

    def _forgotten(self, connection: sqlite3.Connection) -> tuple[tuple[str, str], ...]:
        """The devices that `history forget` has retired since the last run, with their probes."""
        version = database.data_version(connection)
        if version == self._known_version:
            return ()
        self._known_version = version
        return database.forgotten_since(connection, self._last_id)

    def _failure(self, error: Exception) -> ProbeError:
        self.close()
        lost = f"; {self._lost}" if self._lost else ""
        text = f"{self._path}: {error}{lost}"
        if not isinstance(error, OSError) and tables.is_damage(error, self._path):
            return ProbeError("corrupt", text)
        reason = "disk_full" if "full" in str(error) else "state_directory"
        return ProbeError(reason, text)


def parts_of(connection: sqlite3.Connection, boot_id: str) -> Iterator[Reply]:
    """The data that earlier agents wrote, in parts that fit the state of a run; at least one."""
    stored: dict[str, tuple[msgspec.Struct, ...]] = {
        "totals": database.load_totals(connection, boot_id),
        "states": database.load_states(connection),
        "latest": database.latest(connection),
    }
    part: dict[str, list[Any]] = {}
    size = 0
    for field, records in stored.items():
        for record in records:
            length = len(encode(record))
            if size and size + length > PART_BYTES:
                yield msgspec.structs.replace(Reply(), **_frozen(part))
                part, size = {}, 0
            part.setdefault(field, []).append(record)
            size += length
    yield msgspec.structs.replace(Reply(), **_frozen(part))


def _frozen(part: dict[str, list[Any]]) -> dict[str, tuple[Any, ...]]:
    return {field: tuple(records) for field, records in part.items()}


def _identity(path: Path) -> tuple[int, int] | None:
    """Device and inode of a file; None where there is none."""
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_dev, status.st_ino
