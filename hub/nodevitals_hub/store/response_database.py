"""respond.db: one SQLite file in the hub's state directory, with its own thread.

In: transactions, as functions of a connection. Out: their results, or StoreError with one line.
Each transaction is committed, on disk, before it returns; a killed process loses none, and leaves
none half done. The store of checks holds the lock of the directory (check_store.py).
"""

from __future__ import annotations

import asyncio
import logging
import sqlite3
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

import msgspec

from nodevitals.state import damaged_files
from nodevitals_hub.store import aside_tables, sound_files
from nodevitals_hub.store.check_store import StoreError

FILE_NAME = "respond.db"
BUSY_SECONDS = 5.0
ERRORS = (sqlite3.Error, UnicodeDecodeError, msgspec.DecodeError, MemoryError, OSError)
# One entry per version of the file; `user_version` counts those that were executed. A table has the
# columns that statements choose by, and the record as JSON.
MIGRATIONS = (
    """
    CREATE TABLE inbox (number INTEGER PRIMARY KEY AUTOINCREMENT, time REAL NOT NULL,
        reader TEXT NOT NULL, message BLOB NOT NULL);
    CREATE INDEX inbox_reader ON inbox (reader, number);
    CREATE TABLE seen (key TEXT PRIMARY KEY, time REAL NOT NULL) WITHOUT ROWID;
    CREATE TABLE deliveries (id TEXT PRIMARY KEY, channel TEXT NOT NULL, state TEXT NOT NULL,
        created REAL NOT NULL, next_try REAL NOT NULL, record BLOB NOT NULL);
    CREATE INDEX deliveries_state ON deliveries (state, channel, next_try);
    CREATE TABLE incidents (id TEXT PRIMARY KEY, key TEXT NOT NULL, opened REAL NOT NULL,
        resolved REAL, node TEXT NOT NULL, record BLOB NOT NULL);
    CREATE INDEX incidents_key ON incidents (key, opened);
    CREATE INDEX incidents_opened ON incidents (opened);
    CREATE TABLE isolations (id TEXT PRIMARY KEY, node TEXT NOT NULL, state TEXT NOT NULL,
        created REAL NOT NULL, record BLOB NOT NULL);
    CREATE INDEX isolations_state ON isolations (state, created);
    CREATE INDEX isolations_node ON isolations (node, created);
    CREATE TABLE drills (id TEXT PRIMARY KEY, until REAL NOT NULL, record BLOB NOT NULL);
    CREATE TABLE facts (name TEXT PRIMARY KEY, value BLOB NOT NULL) WITHOUT ROWID;
    """,
    """
    CREATE TABLE repairs (id TEXT PRIMARY KEY, isolation TEXT NOT NULL, state TEXT NOT NULL,
        created REAL NOT NULL, record BLOB NOT NULL);
    CREATE INDEX repairs_state ON repairs (state, created);
    CREATE INDEX repairs_isolation ON repairs (isolation, created);
    CREATE TABLE aside (time REAL NOT NULL, kind TEXT NOT NULL, name TEXT NOT NULL, record BLOB);
    ALTER TABLE deliveries ADD COLUMN attempts INTEGER NOT NULL DEFAULT 0;
    """,
    """
    CREATE TABLE groups (key TEXT PRIMARY KEY, time REAL NOT NULL, record BLOB NOT NULL)
        WITHOUT ROWID;
    ALTER TABLE deliveries ADD COLUMN thread TEXT NOT NULL DEFAULT '';
    ALTER TABLE deliveries ADD COLUMN says TEXT NOT NULL DEFAULT '';
    CREATE INDEX deliveries_thread ON deliveries (channel, thread);
    """,
)
Result = TypeVar("Result")

log = logging.getLogger(__name__)


class Database:
    """The file. Each method is one transaction; the first one opens or creates the file: a hub
    without messages and isolations has none.
    """

    def __init__(self, directory: str) -> None:
        self._path = Path(directory, FILE_NAME)
        self._problem = ""
        self._connection: sqlite3.Connection | None = None
        """None before the first transaction, and while the file cannot be opened."""
        self.aside: tuple[aside_tables.Aside, ...] = ()
        """The records that are set aside, as of the last transaction."""
        self.lost = ""
        """What was lost when a damaged file was set aside, in one line."""
        self.set_aside: list[float] = []
        """When damaged files that are kept were set aside (seconds since the epoch)."""
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="respond")

    def exists(self) -> bool:
        """Whether there is a file."""
        return self._path.exists()

    def _open(self) -> sqlite3.Connection:
        connection, self.lost = sound_files.open_sound(self._path, _connect)
        self.aside = aside_tables.counts(connection)
        self.set_aside = damaged_files.times(self._path)
        if self.lost:
            log.error("%s", self.lost)
        return connection

    async def do(self, work: Callable[[sqlite3.Connection], Result]) -> Result:
        """Execute a transaction in the thread: all of it, or nothing. Raises StoreError."""

        def transaction() -> Result:
            connection = self._connection = self._connection or self._open()
            try:
                return self._execute(connection, work)
            except sqlite3.DatabaseError as error:
                # Only the class itself is a damaged file; its subclasses are errors of the disk, or
                # of our statements.
                if type(error) is not sqlite3.DatabaseError:
                    raise
                connection.close()
                self._connection = None
                connection = self._connection = self._open()
                if not self.lost:
                    raise
                return self._execute(connection, work)

        try:
            result = await asyncio.get_running_loop().run_in_executor(self._thread, transaction)
        except ERRORS as error:
            text = f"{self._path}: {' '.join(str(error).split())}"
        except RuntimeError:  # the thread was shut down
            text = f"{self._path}: closed"
        else:
            self._problem = ""
            return result
        if text != self._problem:
            self._problem = text
            log.error("%s; it is tried again", text)
        raise StoreError(text)

    def _execute(
        self, connection: sqlite3.Connection, work: Callable[[sqlite3.Connection], Result]
    ) -> Result:
        with connection:
            connection.execute("BEGIN IMMEDIATE")
            result = work(connection)
            aside = aside_tables.counts(connection)
        self.aside = aside
        return result

    async def close(self) -> None:
        """Close the file."""

        def close() -> None:
            if self._connection is not None:
                self._connection.close()

        await asyncio.get_running_loop().run_in_executor(self._thread, close)
        self._thread.shutdown()


def _connect(path: Path) -> sqlite3.Connection:
    connection = sqlite3.connect(
        path, timeout=BUSY_SECONDS, check_same_thread=False, isolation_level=None
    )
    # A damaged character affects only its row; the other rows are read.
    connection.text_factory = lambda data: data.decode(errors="replace")
    # A message that was acknowledged to Alertmanager must survive a power loss.
    # https://www.sqlite.org/pragma.html#pragma_synchronous
    sound_files.create(connection, MIGRATIONS, "FULL")
    return connection
