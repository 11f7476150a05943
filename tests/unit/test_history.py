"""The history's table: bounded by age and rows, and a device's last row is never lost."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest

from nodevitals.state import history
from nodevitals.state.journal import FORGOTTEN, Row, Total


@pytest.fixture
def database(tmp_path: Path) -> Iterator[sqlite3.Connection]:
    connection = history.connect(str(tmp_path))
    yield connection
    connection.close()


def fill(database: sqlite3.Connection, count: int) -> None:
    history.append(database, [Row(n, "p", "busy", f"state-{n}") for n in range(count)])
    database.commit()


def test_rows_come_back_in_order(database: sqlite3.Connection) -> None:
    fill(database, 3)
    history.append(database, [Row(9, "q", "other", "ok", "detail")])
    assert [row.state for row in history.query(database)] == ["state-0", "state-1", "state-2", "ok"]
    assert [row.time for row in history.query(database, since=2)] == [2, 9]
    assert history.query(database, device="other") == [Row(9, "q", "other", "ok", "detail")]


def test_old_rows_go_but_never_a_devices_last(database: sqlite3.Connection) -> None:
    history.append(database, [Row(0, "p", "quiet", "lost")])
    fill(database, 50)
    history.prune(database, oldest=40, max_rows=1000)
    rows = history.query(database)
    assert [row.time for row in rows if row.device == "busy"] == list(range(40, 50))
    assert [row.state for row in rows if row.device == "quiet"] == ["lost"]


def test_rows_are_bounded_in_number(database: sqlite3.Connection) -> None:
    history.append(database, [Row(0, "p", "quiet", "lost")])
    fill(database, 50)
    history.prune(database, oldest=0, max_rows=10)
    rows = history.query(database)
    assert [row.state for row in rows] == ["lost", *(f"state-{n}" for n in range(40, 50))]


def test_fewer_rows_than_the_bound_are_left_alone(database: sqlite3.Connection) -> None:
    fill(database, 5)
    history.prune(database, oldest=0, max_rows=10)
    assert len(history.query(database)) == 5


def test_totals_are_of_this_boot(database: sqlite3.Connection) -> None:
    total = Total("p", "t", "kept", "nodevitals_x_total", ("a", "ü"), 3)
    history.save_totals(database, "boot-1", [total])
    assert history.load_totals(database, "boot-1") == (total,)
    assert history.load_totals(database, "boot-2") == ()
    assert history.load_totals(database, "boot-1") == ()


def test_forgetting_tells_who_knew_the_device(database: sqlite3.Connection) -> None:
    fill(database, 1)
    assert history.forget(database, "busy", 5.0) == ["p"]
    assert history.forget(database, "nobody", 5.0) == []
    assert [row.state for row in history.latest(database)] == [FORGOTTEN]
