"""Opening a database that may be damaged: its readable rows are copied to a new file.

Any damage, a changed bit in a row as well, leads to a new file: a damaged index or a key in the
wrong place would make writes go astray later.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

from nodevitals.state import tables
from nodevitals.state.tables import FILE_NAME, TABLES

# A larger file, which only a raised `max_rows` makes, would take longer than the deadline: of its
# history only the structure of what is used is checked, when it is used.
MAX_CHECKED_BYTES = 64 * 1024 * 1024
MAX_COPIED_ROWS = 200_000
MAX_NAMED = 5
_KEYS = {
    "totals": "boot_id, probe, target, part, family, labels",
    "states": "probe, target",
    "reference": "rowid",
    "history": "id",
}
# The file is as it was; what failed is the disk, or another process is in the way.
_OTHER_FAILURES = ("locked", "disk I/O", "is full", "unable to open", "interrupted")


def is_damage(error: Exception, path: Path) -> bool:
    """Whether an error of SQLite means that the file is damaged, or is no database."""
    # sqlite_errorcode exists since Python 3.11; the texts are SQLite's own.
    if "readonly" in str(error):  # what a damaged version number in its header looks like, too
        return os.access(path, os.W_OK) and os.access(path.parent, os.W_OK)
    return not any(text in str(error) for text in _OTHER_FAILURES)


def _text_of(error: Exception) -> str:
    return str(error) or type(error).__name__


def open_sound(
    directory: str, persistent: Iterable[str]
) -> tuple[sqlite3.Connection, tuple[str, ...]]:
    """Open the database, repaired where that is needed; and what was lost, one line each.
    `persistent` are the probes that have a state.

    Raises sqlite3.Error and OSError.
    """
    path = Path(directory, FILE_NAME)
    lost: tuple[str, ...] = ()
    if path.exists() and not path.stat().st_size:
        lost = (f"{path} was empty; history and counters start anew",)
    try:
        connection = tables.connect(directory)
    except tables.ERRORS as error:
        if not is_damage(error, path):
            raise
        found = _text_of(error)
    else:
        found = _damage_of(connection, path)
        if not found:
            return connection, lost
        connection.close()
    lost = rebuild(path, found, persistent)
    return tables.connect(directory), lost


def _damage_of(connection: sqlite3.Connection, path: Path) -> str:
    """What is wrong with an open database; '' where it is sound."""
    whole = path.stat().st_size <= MAX_CHECKED_BYTES
    try:
        for check in ("",) if whole else ("(totals)", "(states)"):
            [answer] = connection.execute(f"PRAGMA integrity_check{check}").fetchone()
            if answer != "ok":
                return str(answer)
        for table in TABLES:
            if whole or table != "history":
                damaged = tables.count_damaged(connection, table)
                if damaged:
                    return f"damaged rows in {table}: {damaged}"
    except tables.ERRORS as error:
        if not is_damage(error, path):
            connection.close()
            raise
        return _text_of(error)
    return ""


def rebuild(path: Path, found: str, persistent: Iterable[str] = ()) -> tuple[str, ...]:
    """Replace a damaged file by a new one with its readable rows, and keep it as `.corrupt`.
    Returns what was lost, one line each. Raises sqlite3.Error and OSError.
    """
    new, aside = path.with_suffix(".db.new"), path.with_suffix(".db.corrupt")
    for leftover in (new, aside):
        leftover.unlink(missing_ok=True)
    with closing(tables.open_file(new)) as target, closing(tables.open_file(path)) as source:
        tables.create_tables(target)
        # Otherwise no page of a file that was cut can be read.
        source.execute("PRAGMA writable_schema = ON")
        with target:
            lost = [line for table in TABLES for line in _copy(source, target, table)]
            if any(line.startswith("states: ") for line in lost):
                lost += _remove_counts_without_state(target, persistent)
    with contextlib.suppress(OSError):
        os.link(path, aside)
    for suffix in ("-wal", "-shm"):
        Path(f"{path}{suffix}").unlink(missing_ok=True)
    new.replace(path)
    return (f"{path} is damaged ({found}); its readable rows were kept, it is now {aside}", *lost)


def _copy(source: sqlite3.Connection, target: sqlite3.Connection, table: str) -> Iterator[str]:
    """Copy the sound rows of a table from its end, and from its start where there is a gap."""
    kept, problem = 0, ""
    damaged: dict[int, str] = {}
    columns = (*(["id"] if table == "history" else []), *TABLES[table], "checksum")
    marks = ", ".join("?" * len(columns))
    into = f"INSERT OR IGNORE INTO {table} ({', '.join(columns)}) VALUES ({marks})"
    for order in ("DESC", "ASC"):
        try:
            for row in _rows(source, table, columns, order):
                *values, checksum = row[1:] if table == "history" else row
                if tables.is_sound(table, values, checksum):
                    kept += target.execute(into, row).rowcount
                else:
                    damaged[hash(row)] = _name_of(values)
        except tables.ERRORS as error:
            problem = _text_of(error)
        else:
            break
    if kept == MAX_COPIED_ROWS:
        problem = f"only the last {kept} are copied"
    if table == "reference":
        return  # nothing that anyone misses
    if damaged:
        names = ", ".join(sorted(damaged.values())[:MAX_NAMED])
        yield f"{table}: {len(damaged)} damaged rows are lost: {names}; {kept} are kept"
    if problem:
        yield f"{table}: rows are lost ({problem}), {kept} are kept"


def _rows(
    source: sqlite3.Connection, table: str, columns: tuple[str, ...], order: str
) -> Iterator[tuple[Any, ...]]:
    """The rows of a table; those of a version without checksums get one where their types fit."""
    found = [row[1] for row in source.execute(f"PRAGMA table_info({table})")]
    wanted = [name for name in columns if name != "checksum" or "checksum" in found or not found]
    keys = _KEYS[table].replace(",", f" {order},")
    rows = source.execute(
        f"SELECT {', '.join(wanted)} FROM {table} ORDER BY {keys} {order} LIMIT {MAX_COPIED_ROWS}"
    )
    for row in rows:
        yield row if len(wanted) == len(columns) else _sealed(table, row)


def _sealed(table: str, row: tuple[Any, ...]) -> tuple[Any, ...]:
    if table == "history":
        return (row[0], *tables.sealed(*row[1:]))
    return tables.sealed(*row)


def _name_of(values: list[Any]) -> str:
    """The key of a damaged row as it reads now."""
    return " ".join(str(value) for value in values if isinstance(value, str))[:100]


def _remove_counts_without_state(
    target: sqlite3.Connection, persistent: Iterable[str]
) -> Iterator[str]:
    """A probe whose state is lost may count again what it has counted: its counters start at 0."""
    for probe in persistent:
        removed = target.execute(
            "DELETE FROM totals WHERE probe = ? AND NOT EXISTS (SELECT 1 FROM states"
            " WHERE states.probe = totals.probe AND states.target = totals.target)",
            (probe,),
        ).rowcount
        if removed:
            yield f"totals: {removed} counters of {probe} start at 0, because its state is lost"
