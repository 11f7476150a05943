"""The database: the history is bounded by age and rows and keeps the last row of each device."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest

from nodevitals.state import database, tables
from nodevitals.state.records import FORGOTTEN, Row, Total


@pytest.fixture
def connection(tmp_path: Path) -> Iterator[sqlite3.Connection]:
    connection = tables.connect(str(tmp_path))
    yield connection
    connection.close()


def fill(connection: sqlite3.Connection, count: int) -> None:
    database.append(connection, [Row(n, "p", "busy", f"state-{n}") for n in range(count)])
    connection.commit()


def test_rows_are_returned_in_order(connection: sqlite3.Connection) -> None:
    fill(connection, 3)
    database.append(connection, [Row(9, "q", "other", "ok", "detail")])
    assert [row.state for row in database.query(connection)] == [
        "state-0",
        "state-1",
        "state-2",
        "ok",
    ]
    assert [row.time for row in database.query(connection, since=2)] == [2, 9]
    assert database.query(connection, device="other") == [Row(9, "q", "other", "ok", "detail")]


def test_pruning_by_age_keeps_the_last_row_of_each_device(connection: sqlite3.Connection) -> None:
    database.append(connection, [Row(0, "p", "quiet", "lost")])
    fill(connection, 50)
    database.prune(connection, oldest=40, max_rows=1000)
    rows = database.query(connection)
    assert [row.time for row in rows if row.device == "busy"] == list(range(40, 50))
    assert [row.state for row in rows if row.device == "quiet"] == ["lost"]


def test_pruning_by_number_keeps_the_last_row_of_each_device(
    connection: sqlite3.Connection,
) -> None:
    database.append(connection, [Row(0, "p", "quiet", "lost")])
    fill(connection, 50)
    database.prune(connection, oldest=0, max_rows=10)
    rows = database.query(connection)
    assert [row.state for row in rows] == ["lost", *(f"state-{n}" for n in range(40, 50))]


def test_pruning_keeps_rows_within_the_limits(connection: sqlite3.Connection) -> None:
    fill(connection, 5)
    database.prune(connection, oldest=0, max_rows=10)
    assert len(database.query(connection)) == 5


def test_pruning_keeps_rows_that_were_written_with_a_wrong_clock(
    connection: sqlite3.Connection,
) -> None:
    """A clock at 1970, as it was after a boot, does not make the last rows the oldest."""
    times = (10, 50, 0, 2000, 51)
    database.append(connection, [Row(at, "p", "busy", f"state-{at}") for at in times])
    database.prune(connection, oldest=40, max_rows=10, newest=1000)
    assert [row.time for row in database.query(connection)] == [50, 0, 2000, 51]


def test_totals_of_another_boot_are_removed(connection: sqlite3.Connection) -> None:
    total = Total("p", "t", "kept", "nodevitals_x_total", ("a", "ü"), 3)
    database.save_totals(connection, "boot-1", [total])
    assert database.load_totals(connection, "boot-1") == (total,)
    assert database.load_totals(connection, "boot-2") == ()
    assert database.load_totals(connection, "boot-1") == ()


def test_forget_returns_the_probes_of_the_device(connection: sqlite3.Connection) -> None:
    fill(connection, 1)
    assert database.forget(connection, "busy", 5.0) == ["p"]
    assert database.forget(connection, "unknown", 5.0) == []
    assert [row.state for row in database.latest(connection)] == [FORGOTTEN]
