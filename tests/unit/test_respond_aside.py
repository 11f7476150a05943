"""A record of respond.db that cannot be decoded holds up no other."""

from __future__ import annotations

import asyncio
import sqlite3
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from nodevitals_hub.incidents import drill, incident_tables
from nodevitals_hub.isolation import isolation_tables
from nodevitals_hub.isolation.isolation_marks import meaning
from nodevitals_hub.isolation.ledger import Act, Ledger
from nodevitals_hub.isolation.schedulers.schedulers import NodeState
from nodevitals_hub.notify import watchdog
from nodevitals_hub.records import Delivery, Drill, Incident, Isolation
from nodevitals_hub.repair import repair_tables
from nodevitals_hub.repair.repair_records import Repair
from nodevitals_hub.repair.repair_tables import Start
from nodevitals_hub.settings.repairs import RepairSettings
from nodevitals_hub.store import aside_tables, delivery_tables, inbox_tables
from nodevitals_hub.store.response_database import Database
from testbed.isolations import World, fault, isolation_settings

POISON: tuple[Any, ...] = (b"{", b"", b"\xff\xfe", b"null", b"[" * 100_000, b'{"id": "x"}', 7, "t")
INTO = "deliveries (id, channel, state, created, next_try, record)"
NAME = "20261123-043120-jcldqs"
INCIDENT = Incident(id=NAME, key="k", title="t", severity="critical", opened=10.0)
DRILL = Drill(id=NAME, node="gpu-1", fault="x", severity="critical", created=0.0, until=9.0, by="a")
DELIVERY = Delivery(id="1-chat", channel="chat", created=1.0, title="t", text="x")
NOW = time.time()
ISOLATION = Isolation(
    id=NAME,
    node="gpu-1",
    pool="a",
    dry_run=False,
    state="isolated",
    faults=(fault("gpu-1"),),
    created=NOW,
    decided=NOW,
    acted=NOW,
)
BAD_ID = "20261123-043120-aaaaaa"
INTO_ISOLATIONS = "isolations (id, node, state, created, record)"
INTO_REPAIRS = "repairs (id, isolation, state, created, record)"
ENTRY = RepairSettings(name="reset", faults=("xid",), command=("/bin/true",), per_hour=1)
REPAIR = Repair(
    id=f"{NAME}-reset",
    isolation=NAME,
    name="reset",
    node="gpu-1",
    fault="xid",
    state="succeeded",
    created=NOW,
    timeout=60.0,
)
Work = Callable[[sqlite3.Connection], Any]


def done(folder: Path, *works: Work) -> list[Any]:
    """What transactions return, and last what is aside: its kinds and numbers."""

    async def main() -> list[Any]:
        database = Database(str(folder))
        try:
            found = [await database.do(work) for work in works]
            return [*found, [(one.kind, one.number) for one in database.aside]]
        finally:
            await database.close()

    return asyncio.run(main())


def poisoned(into: str, *more: object) -> Work:
    def work(connection: sqlite3.Connection) -> None:
        for number, record in enumerate(POISON):
            values = [f"{number}-bad" if one is NAME else one for one in more]
            connection.execute(f"INSERT INTO {into}", (*values, record))

    return work


@pytest.mark.parametrize(
    "read",
    [
        lambda c: delivery_tables.due(c, "chat", 100.0, 100),
        lambda c: delivery_tables.newest(c, "waiting", 100),
    ],
)
def test_deliveries(tmp_path: Path, read: Work) -> None:
    bad = poisoned(f"{INTO} VALUES (?, ?, ?, ?, ?, ?)", NAME, "chat", "waiting", 1.0, 1.0)
    good = lambda c: delivery_tables.write(c, [DELIVERY])  # noqa: E731
    *_, first, again, aside = done(tmp_path, bad, good, read, read)
    assert first == again == [DELIVERY]
    assert aside == [("delivery", len(POISON))]


@pytest.mark.parametrize(
    "read",
    [
        incident_tables.unresolved,
        lambda c: incident_tables.between(c, 0.0, 100.0, 100),
        lambda c: [incident_tables.newest_of(c, "k")],
    ],
)
def test_incidents(tmp_path: Path, read: Work) -> None:
    bad = poisoned("incidents VALUES (?, ?, ?, ?, ?, ?)", NAME, "k", 1.0, None, "n")
    good = lambda c: incident_tables.write(c, INCIDENT)  # noqa: E731
    *_, first, aside = done(tmp_path, bad, good, incident_tables.unresolved, read)
    assert first == [INCIDENT]
    assert aside == [("incident", len(POISON))]


def test_an_incident_is_found_by_its_alert_beside_damaged_ones(tmp_path: Path) -> None:
    def bad(connection: sqlite3.Connection) -> None:
        connection.execute("INSERT INTO incidents VALUES ('a', 'k', 1, NULL, 'n', '{abc')")

    found, aside = done(tmp_path, bad, lambda c: incident_tables.with_alert(c, "abc"))[1:]
    assert (found, aside) == (None, [("incident", 1)])


def test_drills(tmp_path: Path) -> None:
    bad = poisoned("drills VALUES (?, ?, ?)", NAME, 1.0)
    good = lambda c: drill.write(c, DRILL)  # noqa: E731
    *_, found, aside = done(tmp_path, bad, good, lambda c: drill.newest(c, 100))
    assert (found, aside) == ([DRILL], [("drill", len(POISON))])


def test_messages_however_many(tmp_path: Path) -> None:
    def bad(connection: sqlite3.Connection) -> None:
        row = (0.0, "notify", b"[" * 9999)
        connection.executemany(
            "INSERT INTO inbox (time, reader, message) VALUES (?, ?, ?)", [row] * 3000
        )

    found, number, aside = done(
        tmp_path, bad, lambda c: inbox_tables.oldest(c, "notify"), inbox_tables.waiting
    )[1:]
    assert (found, number, aside) == (None, 0, [("message", 3000)])
    [_, aside] = done(tmp_path, lambda c: aside_tables.prune(c, 0.0))
    assert aside == [("message", aside_tables.KEEP_MOST)]


def test_the_clusters_of_the_watchdog(tmp_path: Path) -> None:
    bad = lambda c: c.execute("INSERT INTO facts VALUES (?, '{')", (watchdog.FACT,)).close()  # noqa: E731
    *_, found, aside = done(tmp_path, bad, watchdog._read)
    assert (found, aside) == ([], [("fact", 1)])


def isolation_of(state: str, record: object = b"{", node: str = "gpu-2") -> Work:
    """A damaged record of an isolation."""
    row = (BAD_ID, node, state, NOW, record)
    into = f"INSERT INTO {INTO_ISOLATIONS} VALUES (?, ?, ?, ?, ?)"
    return lambda connection: connection.execute(into, row).close()


def good_isolation(connection: sqlite3.Connection) -> None:
    isolation_tables.put(connection, [ISOLATION])


@pytest.mark.parametrize("state", ["waiting", "refused", "isolated", "kept", "watched", "ended"])
@pytest.mark.parametrize(
    "read",
    [
        isolation_tables.followed,
        lambda c: isolation_tables.newest(c, 100),
        lambda c: isolation_tables.recent(c, 0.0),
        isolation_tables.ledger,
    ],
)
def test_isolations(tmp_path: Path, state: str, read: Work) -> None:
    bad = poisoned(f"{INTO_ISOLATIONS} VALUES (?, ?, ?, ?, ?)", NAME, "gpu-2", state, NOW)
    steps = (bad, good_isolation, read, isolation_tables.followed, isolation_tables.ledger)
    *_, found, ledger, aside = done(tmp_path, *steps)
    assert [one for one in found if one.node == "gpu-1"] == [ISOLATION]
    assert [act.node for act in ledger.acts] == ["gpu-1"]
    assert aside == [("isolation", len(POISON))]


@pytest.mark.parametrize("record", POISON)
@pytest.mark.parametrize("state", ["refused", "isolated", "testing", "kept", "watched"])
def test_the_node_of_a_damaged_isolation_is_left_as_it_is(
    tmp_path: Path, state: str, record: object
) -> None:
    """Neither is it cordoned again, as where a person had canceled, nor is it returned."""
    first = lambda c: isolation_tables.get(c, BAD_ID)  # noqa: E731
    bad = isolation_of(state, record)
    _, lost, found, again, aside = done(tmp_path, bad, first, *[isolation_tables.followed] * 2)
    assert lost is None
    assert found == again
    assert [(one.node, one.state, one.dry_run) for one in found] == [("gpu-2", "refused", False)]
    assert BAD_ID in found[0].reason
    assert aside == [("isolation", 1)]
    for in_service in (False, True):
        assert meaning("gpu-2", NodeState(in_service, BAD_ID), lost) == "foreign"
    world = World(20, isolation_settings(dry_run=False))
    world.isolations = {one.id: one for one in found}
    world.lasts(600, fault("gpu-2"))
    assert world.done == []
    world.lasts(900)
    assert world.isolations[found[0].id].state == "ended"
    world.lasts(600, fault("gpu-2"))
    assert world.done == [("isolate", "gpu-2")]


def test_a_damaged_isolation_that_waited_begins_anew(tmp_path: Path) -> None:
    *_, found, aside = done(tmp_path, isolation_of("waiting"), isolation_tables.followed)
    assert (found, aside) == ([], [("isolation", 1)])


def fact(name: str, value: object) -> Work:
    into = "INSERT OR REPLACE INTO facts VALUES (?, ?)"
    return lambda connection: connection.execute(into, (name, value)).close()


@pytest.mark.parametrize("value", [one for one in POISON if one != POISON[5]])
def test_the_ledger_is_made_of_the_isolations(tmp_path: Path, value: object) -> None:
    day = 86400.0

    def isolations(connection: sqlite3.Connection) -> None:
        def made(number: int, age: float, **more: Any) -> Isolation:
            name, decided = f"{NAME[:-6]}{number:06d}", NOW - age
            return replace(ISOLATION, id=name, node=f"gpu-{number}", decided=decided, **more)

        returned = {"state": "returned", "ended": NOW - day}
        old = {"state": "returned", "ended": NOW - 8 * day, "created": NOW - 9 * day}
        approved_late = made(4, day, created=NOW - 30 * day)
        waiting = replace(made(6, 0.0), state="waiting", decided=None)
        found = [ISOLATION, made(2, 2 * day, **returned), made(3, 9 * day, **old), approved_late]
        isolation_tables.put(connection, [*found, made(5, 0.0, dry_run=True), waiting])

    works = (isolations, fact(isolation_tables.LEDGER, value), isolation_of("ended"))
    reads = (isolation_tables.ledger, isolation_tables.ledger)
    *_, found, again, aside = done(tmp_path, *works, *reads)
    acts = {
        ("gpu-1", NOW, False),
        ("gpu-2", NOW - 2 * day, False),
        ("gpu-4", NOW - day, False),
        ("gpu-5", NOW, True),
    }
    assert {(one.node, one.time, one.dry_run) for one in found.acts} == acts
    assert {(one.pool, one.age) for one in found.acts} == {("a", 0.0)}
    assert found.returned == {"gpu-2": NOW - day}
    assert found == again
    assert aside == [("fact", 1), ("isolation", 1)]


def test_a_ledger_that_can_be_read_is_kept(tmp_path: Path) -> None:
    ledger = Ledger(acts=(Act(node="gpu-9", pool="", time=NOW, dry_run=False, age=9.0),))
    put = lambda c: isolation_tables.put_ledger(c, ledger)  # noqa: E731
    *_, found, aside = done(tmp_path, good_isolation, put, isolation_tables.ledger)
    assert (found, aside) == (ledger, [])


def admitted(connection: sqlite3.Connection) -> str:
    """Why the repair is not started; "" where it is."""
    one = replace(REPAIR, state="wanted")
    return repair_tables.admit(connection, one, ENTRY, lambda _: True, NOW)


@pytest.mark.parametrize("state", ["wanted", "started", "succeeded", "dry_run", "else"])
@pytest.mark.parametrize("record", POISON)
@pytest.mark.parametrize(
    "read",
    [
        repair_tables.running,
        lambda c: repair_tables.of_isolations(c, [NAME]),
        lambda c: repair_tables.grow(c, 1.0),
        lambda c: repair_tables.get(c, REPAIR.id),
    ],
)
def test_a_damaged_repair_is_not_started_again(
    tmp_path: Path, read: Work, record: object, state: str
) -> None:
    def work(connection: sqlite3.Connection) -> None:
        row = (REPAIR.id, NAME, state, NOW, record)
        connection.execute(f"INSERT INTO {INTO_REPAIRS} VALUES (?, ?, ?, ?, ?)", row)
        repair_tables.put(connection, replace(REPAIR, id=f"{NAME}-other", name="other"))

    known = lambda c: repair_tables.of_isolations(c, [NAME])  # noqa: E731
    works = (good_isolation, work, read, repair_tables.running, known)
    no_starts = lambda c: c.execute("DELETE FROM facts").close()  # noqa: E731
    *_, running, found, _, refusal, aside = done(tmp_path, *works, no_starts, admitted)
    assert running == []
    was = state if state in ("succeeded", "dry_run") else "unknown"
    assert [(one.id, one.name, one.state) for one in sorted(found, key=lambda one: one.name)] == [
        (f"{NAME}-other", "other", "succeeded"),
        (REPAIR.id, "reset", was),
    ]
    assert refusal == "its conditions have ended"
    assert aside == [("repair", 1)]


def test_a_damaged_repair_whose_columns_are_damaged_as_well(tmp_path: Path) -> None:
    def work(connection: sqlite3.Connection) -> None:
        connection.execute(f"INSERT INTO {INTO_REPAIRS} VALUES ('a', 'b', 'started', 1, '{{')")

    *_, first, again, aside = done(tmp_path, work, *[repair_tables.running] * 2)
    assert (first, again, aside) == ([], [], [("repair", 1)])


@pytest.mark.parametrize("value", POISON)
def test_the_starts_within_the_hour_are_made_of_the_repairs(tmp_path: Path, value: object) -> None:
    def work(connection: sqlite3.Connection) -> None:
        good_isolation(connection)
        other = "20261123-043120-bbbbbb"
        of = {"isolation": other, "id": f"{other}-reset"}
        repair_tables.put(connection, replace(REPAIR, **of))
        old = {"id": f"{other}-old", "name": "old", "created": NOW - 4000.0}
        repair_tables.put(connection, replace(REPAIR, **{**of, **old}))
        dry = {"id": f"{other}-dry", "name": "dry", "state": "dry_run"}
        repair_tables.put(connection, replace(REPAIR, **{**of, **dry}))

    bad = fact(repair_tables.STARTS, value)
    *_, found, refusal, again, aside = done(
        tmp_path, work, bad, repair_tables.starts, admitted, repair_tables.starts
    )
    expected = [Start(name="dry", dry_run=True), Start(name="reset", dry_run=False)]
    assert sorted(found, key=msgspec.json.encode) == expected
    assert refusal == "limit: 1 within the hour (per_hour: 1)"
    assert (again, aside) == (found, [("fact", 1)])


def test_letters_that_are_damaged_hold_up_no_other_row(tmp_path: Path) -> None:
    """A flipped bit in a text is no damage that SQLite finds."""

    def bad(connection: sqlite3.Connection) -> None:
        delivery_tables.write(connection, [DELIVERY])
        connection.execute(
            f"INSERT INTO {INTO} VALUES (CAST(x'ff31' AS TEXT), CAST(x'63ff' AS TEXT),"
            " 'waiting', 1, 1, '{}')"
        )

    _, names, found, _ = done(
        tmp_path,
        bad,
        lambda c: [one.channel for one in delivery_tables.waiting(c)],
        lambda c: delivery_tables.newest(c, "waiting", 100),
    )
    assert names == ["c\ufffd", "chat"] or names == ["chat", "c\ufffd"]
    assert found == [DELIVERY]
