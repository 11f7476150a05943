"""A state directory of version 0.3.0: the hub opens it unchanged, with all that it has.

tests/data/hub-state has one of each database as SQL, and the files beside them.
"""

from __future__ import annotations

import asyncio
import logging
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import msgspec
import pytest

from nodevitals_hub.incidents import drill, incident_tables
from nodevitals_hub.isolation import isolation_tables
from nodevitals_hub.leases.lease_book import HubLease
from nodevitals_hub.leases.leases import FILE_NAME as LEASES_FILE
from nodevitals_hub.repair import repair_tables
from nodevitals_hub.store import aside_tables, delivery_tables, inbox_tables
from nodevitals_hub.store.check_store import Store
from nodevitals_hub.store.response_database import Database
from nodevitals_hub.triggers.alerts import FILE_NAME as ALERTS_FILE
from nodevitals_hub.triggers.alerts import Record
from testbed.node import ROOT

OLD = ROOT / "tests/data/hub-state"
BEGAN = 1795000000.0


@pytest.fixture
def state(tmp_path: Path) -> Path:
    """The directory as the hub of that version left it."""
    for name in ("hub", "respond"):
        with closing(sqlite3.connect(tmp_path / f"{name}.db")) as connection:
            connection.executescript((OLD / f"{name}.sql").read_text())
    for name in (ALERTS_FILE, LEASES_FILE):
        shutil.copy(OLD / name, tmp_path)
    return tmp_path


def test_checks_with_their_results(state: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        store = Store(str(state))
        node, pair = (await store.list(10, "", "", "", ""))[1:]
        assert (pair.phase, pair.requester.name, pair.figure) == ("done", "alice", 2.375e10)
        assert pair.verdict is not None
        assert pair.verdict.findings[0].suspects == ("port mlx5_0",)
        [result] = await store.results(pair.id)
        assert result.reports[0].rows[0].bandwidth_bytes_per_second == 2.375e10
        assert await store.by_key("key-1") == pair
        assert node.verdict is not None
        assert node.verdict.outcome == "ok"
        [unfinished] = await store.unfinished()
        assert [run.name for run in unfinished.issued] == ["nv-cccccc-0", "nv-cccccc-1"]
        assert [run.skipped for run in unfinished.results] == ["peer_busy"]
        assert list(await store.schedules()) == ["nightly"]
        assert store.lost == ""
        await store.close()

    with caplog.at_level(logging.WARNING):
        asyncio.run(main())
    assert caplog.text == ""


def test_incidents_isolations_and_what_belongs_to_them(
    state: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def work(connection: sqlite3.Connection) -> None:
        [incident] = incident_tables.unresolved(connection)
        assert (incident.acknowledged_by, incident.note) == ("alice", "cable reseated")
        assert incident_tables.with_alert(connection, "0f0f0f0f0f0f0f0f") == incident
        assert len(incident_tables.between(connection, 0.0, 2 * BEGAN, 10)) == 2
        [isolated] = isolation_tables.followed(connection)
        [returned] = isolation_tables.newest(connection, 10)
        assert (isolated.state, isolated.drained) == ("isolated", BEGAN + 900)
        assert isolated.faults[0].action == "replace"
        assert (returned.state, returned.dry_run) == ("returned", True)
        assert isolation_tables.ledger(connection).acts[0].age == 600.0
        [repair] = repair_tables.running(connection)
        assert str(repair.target) == "Job repairs/reset-gpu-node-1"
        assert repair_tables.starts(connection)[0].name == "reset"
        [ended] = drill.newest(connection, 10)
        assert ended.ended == BEGAN + 300
        [waiting] = delivery_tables.newest(connection, "waiting", 10)
        assert (waiting.attempts, waiting.alerts) == (2, tuple(incident.alerts.values()))
        assert len(delivery_tables.newest(connection, "sent", 10)) == 1
        for reader in ("incidents", "notify"):
            received = inbox_tables.oldest(connection, reader)
            assert received is not None
            assert received.message.alerts == waiting.alerts
        assert inbox_tables.known(connection, ["owner-1", "owner-2"]) == {"owner-1"}
        assert [kept.kind for kept in aside_tables.counts(connection)] == ["message"]

    async def main() -> None:
        database = Database(str(state))
        await database.do(work)
        assert database.lost == ""
        await database.close()

    with caplog.at_level(logging.WARNING):
        asyncio.run(main())
    assert caplog.text == ""


def test_alerts_and_leases(state: Path) -> None:
    alerts = msgspec.json.decode((state / ALERTS_FILE).read_bytes(), type=dict[str, Record])
    assert alerts["0f0f0f0f0f0f0f0f"].node == "gpu-node-1"
    [lease] = msgspec.json.decode((state / LEASES_FILE).read_bytes(), type=tuple[HubLease, ...])
    assert (lease.nodes, lease.requester.name) == (("gpu-node-1",), "alice")
