"""Opens an SQLite file of the hub; sets a damaged file aside and creates a new one.

In: a path, a function that creates its tables. Out: a connection, and what was lost, in one line.
"""

from __future__ import annotations

import os
import sqlite3
import stat
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

from nodevitals.state import damaged_files

ERRORS = (sqlite3.Error, UnicodeDecodeError, MemoryError)
Connect = Callable[[Path], sqlite3.Connection]


def open_sound(path: Path, connect: Connect) -> tuple[sqlite3.Connection, str]:
    """Open the file; set a damaged one aside and create a new one. Returns what was lost, or ''.
    Raises ERRORS and OSError.
    """
    if not os.path.lexists(path):
        return _begun(path, connect), ""
    problem = _kind_of(path)
    if not problem:
        try:
            connection = connect(path)
        except sqlite3.OperationalError:
            raise  # the disk or its permissions, not the file
        except sqlite3.NotSupportedError:
            raise
        except ERRORS as error:
            problem = str(error)
        else:
            problem = _damage_of(connection)
            if not problem:
                return connection, ""
            connection.close()
    lost = damaged_files.set_aside(path, problem)
    return _begun(path, connect), lost


def _begun(path: Path, connect: Connect) -> sqlite3.Connection:
    """A new database. It is renamed after its tables are created: a kill in between would leave an
    empty file, which the next start would treat as damaged.
    """
    fresh = path.with_name(f"{path.name}.new")
    # SQLite would apply a WAL file that a kill has left from the earlier file to this one.
    for left in (fresh, f"{fresh}-wal", f"{fresh}-shm", f"{path}-wal", f"{path}-shm"):
        Path(left).unlink(missing_ok=True)
    connect(fresh).close()
    fresh.replace(path)
    return connect(path)


def create(connection: sqlite3.Connection, migrations: tuple[str, ...], level: str) -> None:
    """Bring the tables to this version. Closes the connection on failure."""
    try:
        [version] = connection.execute("PRAGMA user_version").fetchone()
        if version > len(migrations):
            raise sqlite3.NotSupportedError(f"written by a newer version (its tables: {version})")
        tables = _names(connection) & _tables_of(migrations)
        if tables != _tables_of(migrations[:version]):
            raise sqlite3.DatabaseError(f"its tables are not those of its version, {version}")
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute(f"PRAGMA synchronous = {level}")
        for number, script in enumerate(migrations[version:], version + 1):
            connection.executescript(f"BEGIN; {script} PRAGMA user_version = {number}; COMMIT;")
    except BaseException:
        connection.close()
        raise


def _tables_of(scripts: tuple[str, ...]) -> set[str]:
    """The tables that scripts create; no later script removes one."""
    with closing(sqlite3.connect(":memory:")) as connection:
        for script in scripts:
            connection.executescript(script)
        return _names(connection)


def _names(connection: sqlite3.Connection) -> set[str]:
    rows = connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")
    return {row[0] for row in rows}


def _kind_of(path: Path) -> str:
    """Why the file cannot be a database; '' where it may be one."""
    status = path.stat()
    if not stat.S_ISREG(status.st_mode):
        return "not a regular file"
    return "" if status.st_size else "empty"


def _damage_of(connection: sqlite3.Connection) -> str:
    try:
        [answer] = connection.execute("PRAGMA quick_check(1)").fetchone()
    except sqlite3.OperationalError:
        connection.close()
        raise
    except ERRORS as error:
        answer = error
    return "" if answer == "ok" else str(answer)
