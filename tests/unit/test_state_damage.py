"""A damaged database: no counter has another value than its own, and what is lost is reported."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from nodevitals.state.records import Row
from nodevitals.wire import Sample
from testbed.statefile import EVENTS, KINDS, SOURCES, DamagedState, changed, state_agent
from testbed.tmpfs import mount_tmpfs, unmount

HEADER_BYTES = 100
PAGE_BYTES = 4096
# Every byte: python -m tests.bench damage
STRIDE = 499


@pytest.fixture
def state(tmp_path: Path) -> Iterator[DamagedState]:
    """Yield a state directory with a small database, in memory: each of hundreds of agents makes
    the disk write.
    """
    mount_tmpfs(tmp_path)
    yield DamagedState(tmp_path)
    unmount(tmp_path)


def test_a_changed_byte_in_the_header(state: DamagedState) -> None:
    for at in range(HEADER_BYTES):
        state.lost_after(changed(state.original, at, 0xFF if at % 2 else 0x01))


def test_a_changed_byte_in_any_page(state: DamagedState) -> None:
    offsets = range(HEADER_BYTES, len(state.original), STRIDE)
    reports = [
        state.lost_after(changed(state.original, at, 0xFF if at % 2 else 0x01)) for at in offsets
    ]
    assert any(reports)
    assert not all(reports)


def test_a_file_that_was_cut(state: DamagedState) -> None:
    for length in range(0, len(state.original), PAGE_BYTES // 2):
        assert state.lost_after(state.original[:length])


def test_a_file_with_another_content(state: DamagedState) -> None:
    size = len(state.original)
    for content in (b"\0" * size, b"\xff" * size, b"no database" * 1000, state.original * 2):
        state.lost_after(content)


@pytest.mark.parametrize("value", ["-7.0", "9e999", "'text'", "x'00'", "1e18"])
def test_a_changed_value_is_not_exposed(state: DamagedState, value: str) -> None:
    """Nor does it end the other counters."""
    path = state.directory / "history.db"
    path.write_bytes(state.original)
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute(f"UPDATE totals SET value = {value} WHERE labels LIKE '%kind 3%'")
    with state_agent(state.directory) as agent:
        counters = agent.counters()
        assert len(counters) == 2 * (KINDS - 1)
        assert counters.items() <= state.whole[0].items()
        assert any("2 damaged rows are lost: " in line for line in agent.lost)
        assert any('["kind 3"]' in line for line in agent.lost)


def test_tables_of_an_earlier_version_are_kept(tmp_path: Path) -> None:
    """They have no checksums."""
    with closing(sqlite3.connect(tmp_path / "history.db")) as connection, connection:
        connection.executescript(
            "CREATE TABLE history (id INTEGER PRIMARY KEY, time REAL NOT NULL, probe TEXT NOT NULL,"
            " device TEXT NOT NULL, state TEXT NOT NULL, detail TEXT NOT NULL);"
            "INSERT INTO history VALUES (7, 1.7e9, 'plain', 'device', 'lost', 'why')"
        )
    with state_agent(tmp_path) as agent:
        assert agent.rows() == [Row(1.7e9, "plain", "device", "lost", "why")]


def test_more_counters_than_fit_one_reply_continue(tmp_path: Path) -> None:
    """Every restart would lose all of them."""
    increments = [Sample(EVENTS.name, (f"{n} " + "x" * 400,), 1.0 + n) for n in range(2_000)]
    with state_agent(tmp_path) as agent:
        for source in SOURCES:
            agent.journal.add(source, increments)
        agent.write()
        counters = agent.counters()
    with state_agent(tmp_path) as agent:
        assert agent.counters() == counters
