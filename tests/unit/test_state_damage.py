"""A damaged database is set aside whole, and that is reported."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from nodevitals.state import damaged_files, database, tables
from nodevitals.state.records import Row
from nodevitals.wire import Sample, decode
from testbed.statefile import (
    DEVICES,
    EVENTS,
    KINDS,
    SOURCES,
    STATE_KEY,
    DamagedState,
    LastingState,
    changed,
    state_agent,
)
from testbed.tmpfs import mount_tmpfs, unmount

HEADER_BYTES = 100
PAGE_BYTES = 4096
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
    """Where it is in a value, SQLite does not notice it; no agent fails."""
    offsets = range(HEADER_BYTES, len(state.original), STRIDE)
    reports = [
        state.lost_after(changed(state.original, at, 0xFF if at % 2 else 0x01), values=True)
        for at in offsets
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


@pytest.mark.parametrize("value", ["-7.0", "9e999", "'text'", "x'00'"])
def test_value_that_no_counter_has_is_not_exposed(state: DamagedState, value: str) -> None:
    """Nor does it end the agent."""
    path = state.directory / tables.FILE_NAME
    path.write_bytes(state.original)
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute(f"UPDATE totals SET value = {value} WHERE labels LIKE '%kind 3%'")
    with state_agent(state.directory) as agent:
        assert not agent.failures
        counters = agent.counters()
        assert counters.items() <= state.whole[0].items()
        assert bool(counters) == (not agent.lost)
        assert len(counters) in {0, 2 * (KINDS - 1)}


def test_damage_while_the_agent_runs_loses_no_counter(state: DamagedState) -> None:
    """Nor a state: both are in the agent's memory."""
    with state_agent(state.directory) as agent:
        with closing(sqlite3.connect(state.directory / tables.FILE_NAME)) as connection:
            connection.execute("DROP TABLE totals")
        agent.journal.add(SOURCES[0], [Sample(EVENTS.name, ("kind 1",), 1.0)])
        agent.write()
        assert not agent.failures
        [line] = agent.lost
        assert "history.db is damaged (no such table: totals): it is now " in line
    counters = dict(state.whole[0])
    counters[SOURCES[0], ("kind 1",)] += 1.0
    with state_agent(state.directory) as agent:
        assert agent.counters() == counters
        assert agent.journal.saved_state(STATE_KEY) == state.whole[1]
        assert not agent.lost


def test_file_that_was_set_aside_can_be_opened_and_the_last_three_are_kept(
    state: DamagedState,
) -> None:
    for second in range(5):
        path = state.directory / tables.FILE_NAME
        path.write_bytes(state.original)
        moment = time.strptime(f"2026-01-31T12:00:0{second}", "%Y-%m-%dT%H:%M:%S")
        damaged_files.set_aside(path, "reason", moment)
    names = sorted(file.name for file in state.directory.glob("*damaged*"))
    assert names == [f"history.db.damaged-20260131T12000{second}Z" for second in (2, 3, 4)]
    assert damaged_files.times(path) == [1769860802.0, 1769860803.0, 1769860804.0]
    with closing(sqlite3.connect(state.directory / names[0])) as connection:
        assert database.row_count(connection) == 2 * DEVICES


def test_log_of_a_file_that_was_set_aside_is_not_used_again(tmp_path: Path) -> None:
    """An agent that is killed between the two renames leaves it alone in the directory."""
    connection = tables.connect(str(tmp_path))
    with connection:
        database.append(connection, [Row(1.7e9, "plain", "device", "lost")])
    log = tmp_path / f"{tables.FILE_NAME}-wal"
    content = log.read_bytes()
    connection.close()
    (tmp_path / tables.FILE_NAME).unlink()
    log.write_bytes(content)
    with state_agent(tmp_path) as agent:
        assert agent.rows() == []
        assert not agent.lost


EARLIER_TABLES = {
    "without checksums": (
        "CREATE TABLE history (id INTEGER PRIMARY KEY, time REAL NOT NULL, probe TEXT NOT NULL,"
        " device TEXT NOT NULL, state TEXT NOT NULL, detail TEXT NOT NULL);"
        "INSERT INTO history VALUES (7, 1.7e9, 'plain', 'device', 'lost', 'why')"
    ),
    "with checksums": """
        CREATE TABLE history (
            id INTEGER PRIMARY KEY, time REAL NOT NULL, probe TEXT NOT NULL, device TEXT NOT NULL,
            state TEXT NOT NULL, detail TEXT NOT NULL, checksum INTEGER NOT NULL);
        CREATE INDEX history_device ON history (probe, device, id);
        CREATE TABLE totals (
            boot_id TEXT NOT NULL, probe TEXT NOT NULL, target TEXT NOT NULL, part TEXT NOT NULL,
            family TEXT NOT NULL, labels TEXT NOT NULL, value REAL NOT NULL,
            checksum INTEGER NOT NULL,
            PRIMARY KEY (boot_id, probe, target, part, family, labels)) WITHOUT ROWID;
        CREATE TABLE states (
            probe TEXT NOT NULL, target TEXT NOT NULL, state BLOB NOT NULL,
            checksum INTEGER NOT NULL, PRIMARY KEY (probe, target)) WITHOUT ROWID;
        CREATE TABLE reference (
            boot_id TEXT NOT NULL, since_boot REAL NOT NULL, time REAL NOT NULL,
            checksum INTEGER NOT NULL);
        INSERT INTO history VALUES (7, 1.7e9, 'plain', 'device', 'lost', 'why', 4711);
        INSERT INTO totals VALUES (
            '11111111-2222-3333-4444-555555555555', 'plain', 't', 'kept',
            'nodevitals_test_events_total', '["kind 1"]', 5.0, 4711);
        INSERT INTO states VALUES ('lasting', 't', x'82a873657175656e636507a56e616d657390', 4711);
        INSERT INTO reference VALUES ('boot', 10.0, 1.7e9, 4711);
    """,
}


@pytest.mark.parametrize("version", EARLIER_TABLES)
def test_tables_of_an_earlier_version_are_kept(tmp_path: Path, version: str) -> None:
    path = tmp_path / tables.FILE_NAME
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.executescript(EARLIER_TABLES[version])
    for _ in range(2):
        with state_agent(tmp_path) as agent:
            assert not agent.lost
            assert agent.rows() == [Row(1.7e9, "plain", "device", "lost", "why")]
            if version == "with checksums":
                assert agent.counters() == {(SOURCES[0], ("kind 1",)): 5.0}
                state = decode(agent.journal.saved_state(STATE_KEY), LastingState)
                assert state == LastingState(7, [])


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
