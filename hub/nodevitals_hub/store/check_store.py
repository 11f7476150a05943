"""The store of checks: one SQLite file in the hub's state directory, with its own thread.

In: checks, the orders issued for their runs, results. Out: the same, also after the process was
killed. The results of a finished check are one compressed blob in a separate table, which listing
checks does not read. Methods raise StoreError, whose text is one line.
"""

from __future__ import annotations

import asyncio
import logging
import os
import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

import msgspec

from nodevitals.checks.model import Check, RunResult
from nodevitals.state import damaged_files
from nodevitals.state.lock import DirectoryInUseError, DirectoryLock
from nodevitals_hub.store import check_tables

LOCK_SECONDS = 2.0
LEVEL = 6
LOOKED_AT = 20
"""Number of checks without a reference that are searched for the last one with a figure."""
LIKES, OTHERS = 20, 40
"""Number of earlier checks that a check can be compared with: like ones, and others."""
Result = TypeVar("Result")

log = logging.getLogger(__name__)


class StoreError(Exception):
    """The store cannot be used now; the text is the reason, in one line."""


class Issued(msgspec.Struct, frozen=True):
    """The name under which a run was given to agents or a launcher, and when (seconds since the
    epoch).
    """

    number: int
    name: str
    time: float


class Unfinished(msgspec.Struct, frozen=True):
    """A check that has not ended, with its results and its issued runs."""

    check: Check
    results: tuple[RunResult, ...] = ()
    issued: tuple[Issued, ...] = ()


_encode = msgspec.json.Encoder().encode
_check = msgspec.json.Decoder(Check).decode
_result = msgspec.json.Decoder(RunResult).decode
_results = msgspec.json.Decoder(tuple[RunResult, ...]).decode


class Store:
    """All checks. Each method is one transaction, in the store's thread."""

    def __init__(self, directory: str) -> None:
        """Lock the directory and open the file. Raises StoreError."""
        self._path = Path(directory, check_tables.FILE_NAME)
        self._problem = ""
        self._unreadable: set[int] = set()
        """Hashes of the unreadable records that were logged."""
        self.lost = ""
        """What was lost when a damaged file was set aside, in one line."""
        try:
            os.makedirs(directory, mode=0o755, exist_ok=True)
            self._lock = DirectoryLock(directory, LOCK_SECONDS)
        except OSError as error:
            raise StoreError(f"{directory}: {error.strerror}") from None
        except DirectoryInUseError as error:
            text = str(error).replace("another agent", "another hub")
            raise StoreError(f"{directory}: {text}; end it first") from None
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="store")
        try:
            self._connection, self.lost = self._thread.submit(
                check_tables.open_sound, self._path
            ).result()
        except (*check_tables.ERRORS, OSError) as error:
            self._thread.shutdown()
            self._lock.release()
            raise StoreError(f"{self._path}: {error}") from None
        self.set_aside = damaged_files.times(self._path)
        """When damaged files that are kept were set aside (seconds since the epoch)."""

    async def close(self) -> None:
        """Close the file and release the directory."""
        await self._do(self._connection.close)
        self._thread.shutdown()
        self._lock.release()

    async def add(self, check: Check, key: str) -> Check:
        """Store a new check; for a key that was used before, return the earlier check."""

        def write() -> Check:
            with self._connection as connection:
                if key:
                    row = connection.execute(
                        "SELECT record FROM checks WHERE key = ?", (key,)
                    ).fetchone()
                    if row:
                        return _check(row[0])
                check_tables.insert_check(connection, check, _encode(check), key)
            return check

        return await self._do(write)

    async def by_key(self, key: str) -> Check | None:
        """The check that was stored with an idempotency key."""

        def read() -> Check | None:
            rows = self._connection.execute("SELECT record FROM checks WHERE key = ?", (key,))
            return next((_check(row[0]) for row in rows), None)

        return await self._do(read)

    async def update(self, check: Check) -> None:
        """Store the new state of a check that has not ended."""

        def write() -> None:
            with self._connection as connection:
                check_tables.update_check(connection, check, _encode(check))

        await self._do(write)

    async def issue(self, identity: str, runs: Iterable[Issued]) -> None:
        """Store the names of runs before they are given to agents or a launcher."""

        def write() -> None:
            with self._connection as connection:
                connection.executemany(
                    "INSERT INTO runs (check_id, number, name, time) VALUES (?, ?, ?, ?)",
                    [(identity, run.number, run.name, run.time) for run in runs],
                )

        await self._do(write)

    async def record(self, identity: str, result: RunResult) -> None:
        """Store the result of a run."""

        def write() -> None:
            with self._connection as connection:
                connection.execute(
                    "INSERT INTO runs (check_id, number, result) VALUES (?, ?, ?)"
                    " ON CONFLICT (check_id, number) DO UPDATE SET result = excluded.result",
                    (identity, result.number, _encode(result)),
                )

        await self._do(write)

    async def finish(self, check: Check, results: Sequence[RunResult]) -> bool:
        """Store the verdict and the results; False where the check had ended before."""

        def write() -> bool:
            blob = zlib.compress(_encode(tuple(results)), LEVEL)
            with self._connection as connection:
                if not check_tables.update_check(connection, check, _encode(check)):
                    return False
                connection.execute("DELETE FROM runs WHERE check_id = ?", (check.id,))
                connection.execute("INSERT OR REPLACE INTO results VALUES (?, ?)", (check.id, blob))
            return True

        return await self._do(write)

    async def unfinished(self) -> list[Unfinished]:
        """The checks that have not ended, oldest first."""

        def read() -> list[Unfinished]:
            checks = self._readable(check_tables.unfinished(self._connection))
            return [Unfinished(check, *self._runs_of(check.id)) for check in checks]

        return await self._do(read)

    def _readable(self, records: Iterable[bytes]) -> list[Check]:
        """The checks in records. A record with a flipped bit, which SQLite does not detect, is left
        out.
        """
        checks = []
        for record in records:
            try:
                checks.append(_check(record))
            except (msgspec.DecodeError, UnicodeDecodeError) as error:
                if hash(record) not in self._unreadable:
                    self._unreadable.add(hash(record))
                    log.error("%s: a check cannot be read: %s; it is left out", self._path, error)
        return checks

    def _runs_of(self, identity: str) -> tuple[tuple[RunResult, ...], tuple[Issued, ...]]:
        rows = self._connection.execute(
            "SELECT number, name, time, result FROM runs WHERE check_id = ? ORDER BY number",
            (identity,),
        ).fetchall()
        results = tuple(_result(row[3]) for row in rows if row[3] is not None)
        issued = tuple(Issued(*row[:3]) for row in rows if row[1] is not None)
        return results, issued

    async def check(self, identity: str) -> Check | None:
        """One check."""

        def read() -> Check | None:
            rows = self._connection.execute("SELECT record FROM checks WHERE id = ?", (identity,))
            return next((_check(row[0]) for row in rows), None)

        return await self._do(read)

    async def results(self, identity: str) -> tuple[RunResult, ...]:
        """The results that a check has so far."""

        def read() -> tuple[RunResult, ...]:
            blob = self._connection.execute(
                "SELECT blob FROM results WHERE id = ?", (identity,)
            ).fetchone()
            return _results(zlib.decompress(blob[0])) if blob else self._runs_of(identity)[0]

        return await self._do(read)

    async def list(
        self, limit: int, before: str, kind: str, node: str, outcome: str
    ) -> list[Check]:
        """The newest checks first."""

        def read() -> list[Check]:
            rows = check_tables.select(self._connection, limit, before, kind, node, outcome)
            checks = self._readable(rows)
            if missing := len(rows) - len(checks):
                # Clients take a page with fewer checks than requested for the last page.
                more = check_tables.select(
                    self._connection, limit + missing, before, kind, node, outcome
                )
                checks = self._readable(more)[:limit]
            return checks

        return await self._do(read)

    async def like(self, check: Check) -> Check | None:
        """The last other like check that was ok; if there is none, the last one that has a figure
        and only lacks a reference to compare it with.
        """

        def read() -> Check | None:
            for record in check_tables.last_like(self._connection, check, "ok", 1):
                return _check(record)
            records = check_tables.last_like(self._connection, check, "unknown", LOOKED_AT)
            candidates = (_check(record) for record in records)
            return next(
                (candidate for candidate in candidates if _lacks_a_reference(candidate)), None
            )

        return await self._do(read)

    async def earlier(self, check: Check) -> Sequence[Check]:
        """Earlier ended checks of the same kind, each once: those that are alike first."""

        def read() -> Sequence[Check]:
            records = check_tables.earlier(self._connection, check, LIKES, OTHERS)
            return tuple({one.id: one for one in self._readable(records)}.values())

        return await self._do(read)

    async def schedules(self) -> dict[str, bytes]:
        """The stored records of schedules, by name."""

        def read() -> dict[str, bytes]:
            return dict(self._connection.execute("SELECT name, record FROM schedules"))

        return await self._do(read)

    async def keep_schedules(self, records: Mapping[str, bytes]) -> None:
        """Replace the stored records of schedules."""

        def write() -> None:
            with self._connection as connection:
                connection.execute("DELETE FROM schedules")
                connection.executemany("INSERT INTO schedules VALUES (?, ?)", records.items())

        await self._do(write)

    async def prune(self, oldest: float, most: int) -> int:
        """Remove ended checks that were created before `oldest`, and the oldest beyond `most`."""

        def write() -> int:
            with self._connection as connection:
                return check_tables.prune(connection, oldest, most)

        return await self._do(write)

    async def _do(self, work: Callable[[], Result]) -> Result:
        try:
            result = await asyncio.get_running_loop().run_in_executor(self._thread, work)
            self._problem = ""
            return result
        except (*check_tables.ERRORS, msgspec.DecodeError, zlib.error, OSError) as error:
            text = f"{self._path}: {error}"
        except RuntimeError:  # the thread was shut down
            text = f"{self._path}: closed"
        if text != self._problem:
            self._problem = text
            log.error("%s; new checks are refused until it works again", text)
        raise StoreError(text)


def _lacks_a_reference(check: Check) -> bool:
    """Whether it has a figure, and only lacks a reference to compare it with."""
    verdict = check.verdict
    return check.figure is not None and verdict is not None and verdict.reason == "threshold"
