"""The SQLite file in the state directory: the history, counters of this boot, and probe states.

In and out: the records of `records.py`. One process writes, the history's worker; commands read,
and `history forget` adds rows. Functions raise those of `tables.ERRORS`.
"""

from __future__ import annotations

import math
import sqlite3
from collections.abc import Iterable, Sequence
from typing import Any, TypeVar

import msgspec

from nodevitals.state.records import FORGOTTEN, Row, SavedState, Total
from nodevitals.state.reference import Reference
from nodevitals.state.tables import TABLES, insert

Record = TypeVar("Record", bound=msgspec.Struct)
_LATEST = "SELECT max(id) FROM history GROUP BY probe, device"


def _read(
    connection: sqlite3.Connection,
    table: str,
    kind: type[Record],
    where: str = "",
    values: Sequence[Any] = (),
) -> tuple[Record, ...]:
    """The rows of a table as records; their fields are the columns except the id."""
    columns = ", ".join(name for name in TABLES[table] if name != "id")
    rows = connection.execute(f"SELECT {columns} FROM {table} {where}", values)
    return tuple(msgspec.convert(row, kind) for row in rows)


def append(connection: sqlite3.Connection, rows: Iterable[Row]) -> None:
    """Add rows to the history, within the caller's transaction."""
    insert(
        connection,
        "history",
        ((float(row.time), row.probe, row.device, row.state, row.detail) for row in rows),
    )


def save_totals(connection: sqlite3.Connection, boot_id: str, totals: Iterable[Total]) -> None:
    """Replace counters of this boot, within the caller's transaction."""
    rows = (
        (boot_id, t.probe, t.target, t.part, t.family, _labels(t.labels), t.value) for t in totals
    )
    insert(connection, "totals", rows)


def _labels(labels: tuple[str, ...]) -> str:
    return msgspec.json.encode(labels).decode()


def load_totals(connection: sqlite3.Connection, boot_id: str) -> tuple[Total, ...]:
    """The counters of this boot; remove those of other boots."""
    connection.execute("DELETE FROM totals WHERE boot_id != ?", (boot_id,))
    rows = connection.execute("SELECT probe, target, part, family, labels, value FROM totals")
    return tuple(
        msgspec.convert((*source, msgspec.json.decode(labels), value), Total)
        for *source, labels, value in rows
    )


def remove_totals(connection: sqlite3.Connection) -> None:
    """Remove all counters, within the caller's transaction."""
    connection.execute("DELETE FROM totals")


def save_states(connection: sqlite3.Connection, states: Iterable[SavedState]) -> None:
    """Replace the states of targets, within the caller's transaction."""
    insert(connection, "states", map(msgspec.structs.astuple, states))


def load_states(connection: sqlite3.Connection) -> tuple[SavedState, ...]:
    """The states of all targets, of any boot."""
    return _read(connection, "states", SavedState)


def save_reference(connection: sqlite3.Connection, reference: Reference) -> None:
    """Replace the time against which ages are measured, within the caller's transaction."""
    connection.execute("DELETE FROM reference")
    insert(connection, "reference", [msgspec.structs.astuple(reference)])


def load_reference(connection: sqlite3.Connection) -> Reference | None:
    """The time against which ages are measured; None where there is none."""
    rows = _read(connection, "reference", Reference)
    return rows[0] if rows else None


def newest_time(connection: sqlite3.Connection, until: float) -> float | None:
    """The newest time of a row that is not after `until`."""
    newest: float | None = connection.execute(
        "SELECT max(time) FROM history WHERE time <= ?", (until,)
    ).fetchone()[0]
    return newest


def latest(connection: sqlite3.Connection) -> tuple[Row, ...]:
    """The last row of each device."""
    return _read(connection, "history", Row, f"WHERE id IN ({_LATEST})")


def query(
    connection: sqlite3.Connection, since: float = 0.0, device: str | None = None
) -> list[Row]:
    """Rows since a time (seconds since the epoch), oldest first; of one device where given."""
    where = "WHERE time >= ? AND (? IS NULL OR device = ?) ORDER BY id"
    return list(_read(connection, "history", Row, where, (since, device, device)))


def forget(connection: sqlite3.Connection, device: str, now: float) -> list[str]:
    """Retire a device, in a transaction of its own. Returns the probes that reported it, if any."""
    probes = [row.probe for row in latest(connection) if row.device == device]
    with connection:
        append(connection, [Row(now, probe, device, FORGOTTEN) for probe in probes])
    return probes


def prune(
    connection: sqlite3.Connection, oldest: float, max_rows: int, newest: float = math.inf
) -> None:
    """Remove all rows before the first one with a time between `oldest` and `newest`, and all but
    the newest `max_rows`, but never the last row of a device. A row with an older time that was
    written after such a row is not old: the clock was wrong.
    """
    young = "SELECT id FROM history WHERE time BETWEEN ? AND ? ORDER BY id LIMIT 1"
    connection.execute(
        f"DELETE FROM history WHERE id < ({young}) AND id NOT IN ({_LATEST})", (oldest, newest)
    )
    connection.execute(
        "DELETE FROM history WHERE id <= (SELECT id FROM history ORDER BY id DESC"
        f" LIMIT 1 OFFSET ?) AND id NOT IN ({_LATEST})",
        (max_rows,),
    )


def forgotten_since(connection: sqlite3.Connection, last: int) -> tuple[tuple[str, str], ...]:
    """Probe and device of each retirement with a row id above `last`."""
    rows = _read(connection, "history", Row, "WHERE id > ? AND state = ?", (last, FORGOTTEN))
    return tuple((row.probe, row.device) for row in rows)


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


def as_records(rows: Sequence[Row]) -> list[dict[str, Any]]:
    """Rows for --json and --csv."""
    return [msgspec.structs.asdict(row) for row in rows]
