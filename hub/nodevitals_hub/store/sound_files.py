"""Opens an SQLite file of the hub. One that is damaged is replaced by what of it can be read.

In: a path, how its tables are made, how rows are copied. Out: a connection, and what was lost, in
one line. What is done in which order: the new file is complete before the damaged one is moved, so
that a process that is killed at any point leaves one of them, and the next start goes on.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
import stat
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

ERRORS = (sqlite3.Error, UnicodeDecodeError, MemoryError)
_LOGS = ("-wal", "-shm")
_UNREADABLE = object()
Connect = Callable[[Path], sqlite3.Connection]
Copy = Callable[[sqlite3.Connection, sqlite3.Connection], str]


def open_sound(path: Path, connect: Connect, copy: Copy) -> tuple[sqlite3.Connection, str]:
    """Open the file; a damaged one is set aside as `.corrupt`, and a new one begins with what
    `copy` can still read: it returns a few words about that. Returns what was lost, or ''.
    """
    _finish(path)
    found = _kind_of(path)
    if not found:
        try:
            connection = connect(path)
        except sqlite3.OperationalError:
            raise  # the disk or its permissions, not the file
        except sqlite3.NotSupportedError:
            raise
        except ERRORS as error:
            found = " ".join(str(error).split())
        else:
            found = _damage_of(connection)
            if not found:
                return connection, ""
            connection.close()
    return _replaced(path, found, connect, copy)


def is_there(path: Path) -> bool:
    """Whether there is a file to open, also where a process was killed as it replaced it."""
    return path.exists() or path.with_suffix(".db.mended").exists()


def create(connection: sqlite3.Connection, migrations: tuple[str, ...], level: str) -> None:
    """Bring the tables to this version. Closes the connection where that fails."""
    try:
        [version] = connection.execute("PRAGMA user_version").fetchone()
        if version > len(migrations):
            raise sqlite3.NotSupportedError(f"written by a newer version (its tables: {version})")
        found = _names(connection) & _tables_of(migrations)
        if found != _tables_of(migrations[:version]):
            raise sqlite3.DatabaseError(f"its tables are not those of its version, {version}")
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute(f"PRAGMA synchronous = {level}")
        for number, script in enumerate(migrations[version:], version + 1):
            connection.executescript(f"BEGIN; {script} PRAGMA user_version = {number}; COMMIT;")
    except BaseException:
        connection.close()
        raise


def readable(connection: sqlite3.Connection, select: str, order: str) -> Iterator[tuple[Any, ...]]:
    """The rows of a damaged table from its beginning, and from its end where there is a gap; some
    of them twice.
    """
    for direction in ("ASC", "DESC"):
        try:
            for row in connection.execute(f"{select} ORDER BY {order} {direction}"):
                if not any(value is _UNREADABLE for value in row):
                    yield row
        except ERRORS:
            continue
        return


def _tables_of(scripts: tuple[str, ...]) -> set[str]:
    """The tables that scripts make; none of them is removed by a later one."""
    with closing(sqlite3.connect(":memory:")) as connection:
        for script in scripts:
            connection.executescript(script)
        return _names(connection)


def _names(connection: sqlite3.Connection) -> set[str]:
    rows = connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")
    return {row[0] for row in rows}


def _kind_of(path: Path) -> str:
    """Why what is there is no database; '' where it may be one, or is not there."""
    try:
        found = path.stat()
    except FileNotFoundError:
        return ""
    if not stat.S_ISREG(found.st_mode):
        return "not a regular file"
    return "" if found.st_size else "empty"


def _damage_of(connection: sqlite3.Connection) -> str:
    try:
        [answer] = connection.execute("PRAGMA quick_check(1)").fetchone()
    except sqlite3.OperationalError:
        connection.close()
        raise
    except ERRORS as error:
        answer = error
    return "" if answer == "ok" else " ".join(str(answer).split())


def _replaced(
    path: Path, found: str, connect: Connect, copy: Copy
) -> tuple[sqlite3.Connection, str]:
    new, aside = path.with_suffix(".db.new"), path.with_suffix(".db.corrupt")
    for leftover in (new, *(Path(f"{new}{suffix}") for suffix in _LOGS)):
        leftover.unlink(missing_ok=True)
    readable_path = path if path.is_file() else ":memory:"
    with closing(connect(new)) as target:
        with closing(sqlite3.connect(readable_path, isolation_level=None)) as source:
            # Otherwise no page of a file that was cut can be read.
            with contextlib.suppress(*ERRORS):
                source.execute("PRAGMA writable_schema = ON")
            source.text_factory = _text
            kept = copy(source, target)
        target.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    os.replace(new, path.with_suffix(".db.mended"))
    _finish(path)
    lost = f"{path} is damaged ({found}); {kept}, it is now {aside}"
    return connect(path), lost


def _text(data: bytes) -> Any:
    try:
        return data.decode()
    except UnicodeDecodeError:
        return _UNREADABLE


def _finish(path: Path) -> None:
    """Put a new file that is complete in the place of the damaged one."""
    mended, aside = path.with_suffix(".db.mended"), path.with_suffix(".db.corrupt")
    if not mended.exists():
        return
    if os.path.lexists(path):
        _move(path, aside)
    for suffix in _LOGS:
        with contextlib.suppress(FileNotFoundError):
            os.replace(f"{path}{suffix}", f"{aside}{suffix}")
    os.replace(mended, path)


def _move(path: Path, aside: Path) -> None:
    """Rename it; an earlier one is replaced, where that can be."""
    for suffix in _LOGS:
        Path(f"{aside}{suffix}").unlink(missing_ok=True)
    try:
        os.replace(path, aside)
    except OSError:  # one of them is a folder
        os.replace(path, f"{aside}-{time.time_ns()}")
