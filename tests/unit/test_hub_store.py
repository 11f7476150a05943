"""The hub's store: what it keeps, and what it does on a bad day."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from msgspec.structs import replace

from nodevitals.checks.model import Check, CheckRequest, Cost, Requester, RunResult, Verdict
from nodevitals_hub.checks.coordinator import new_identity
from nodevitals_hub.store import check_tables
from nodevitals_hub.store.check_store import Issued, Store, StoreError, Unfinished

COST = Cost(nodes=2, runs=1, node_seconds=1.0, seconds=1.0, bytes=1.0)
OK = Verdict(outcome="ok", message="no fault found")


def new_check(*nodes: str, created: float = 1000.0, kind: str = "pair") -> Check:
    request = CheckRequest(kind=kind, nodes=nodes or ("a1", "a2"))  # type: ignore[arg-type]
    asker = Requester(trigger="rest")
    return Check(id=new_identity(), request=request, requester=asker, cost=COST, created=created)


def ended(check: Check, figure: float | None = None) -> Check:
    return replace(check, phase="done", ended=check.created + 1, verdict=OK, figure=figure)


def with_store(folder: Path, work: Callable[[Store], Awaitable[None]]) -> str:
    """Run the work on a store; what was lost as it was opened."""

    async def main() -> str:
        store = Store(str(folder))
        try:
            await work(store)
        finally:
            await store.close()
        return store.lost

    return asyncio.run(main())


def test_a_check_and_its_runs_are_there_after_a_restart(tmp_path: Path) -> None:
    check = new_check()
    running = replace(check, phase="running", started=1001.0)
    issued = Issued(1, "nv-x-1", 1001.5)
    result = RunResult(number=0, nodes=("a1", "a2"), skipped="lost")

    async def before(store: Store) -> None:
        assert await store.add(check, "") == check
        await store.update(running)
        await store.issue(check.id, [Issued(0, "nv-x-0", 1001.0), issued])
        await store.record(check.id, result)

    async def after(store: Store) -> None:
        both = (Issued(0, "nv-x-0", 1001.0), issued)
        assert await store.unfinished() == [Unfinished(running, (result,), both)]
        assert await store.check(check.id) == running
        assert await store.results(check.id) == (result,)

    with_store(tmp_path, before)
    assert with_store(tmp_path, after) == ""


def test_a_check_ends_once(tmp_path: Path) -> None:
    check = new_check()
    result = RunResult(number=0, nodes=("a1", "a2"))

    async def work(store: Store) -> None:
        await store.add(check, "")
        assert await store.finish(ended(check), [result])
        other = replace(ended(check), verdict=Verdict(outcome="bad", reason="harness"))
        assert not await store.finish(other, [])
        await store.update(replace(check, phase="running"))
        assert await store.check(check.id) == ended(check)
        assert await store.results(check.id) == (result,)
        assert await store.unfinished() == []

    with_store(tmp_path, work)


def test_a_key_is_of_one_check(tmp_path: Path) -> None:
    first = new_check()

    async def work(store: Store) -> None:
        assert await store.add(first, "key") == first
        assert await store.add(new_check(), "key") == first
        assert await store.by_key("key") == first
        assert await store.by_key("other") is None
        assert len(await store.list(10, "", "", "", "")) == 1

    with_store(tmp_path, work)


def test_lists_are_in_the_order_of_arrival_whatever_the_clock_does(tmp_path: Path) -> None:
    times = (3000.0, 1000.0, 2000.0, 5.0)
    checks = [new_check(f"n{number}", "b", created=time) for number, time in enumerate(times)]

    async def work(store: Store) -> None:
        for check in checks:
            await store.add(check, "")
        await store.finish(ended(checks[1]), [])
        newest = [checks[3], checks[2], ended(checks[1]), checks[0]]
        assert await store.list(10, "", "", "", "") == newest
        assert await store.list(2, checks[2].id, "", "", "") == newest[2:]
        assert await store.list(10, "", "", "n2", "") == [checks[2]]
        assert await store.list(10, "", "", "n", "") == []
        assert await store.list(10, "", "pair", "", "ok") == [ended(checks[1])]
        assert await store.list(10, "", "node", "", "") == []

    with_store(tmp_path, work)


def test_the_baseline_is_of_the_last_like_check_that_was_ok(tmp_path: Path) -> None:
    first, second, bad, other = new_check(), new_check(), new_check(), new_check("a1", "a3")

    async def work(store: Store) -> None:
        for number, check in enumerate((first, second, bad, other)):
            await store.add(check, "")
            end = ended(check, figure=float(number))
            if check is bad:
                end = replace(end, verdict=Verdict(outcome="bad", reason="threshold"))
            await store.finish(end, [])
        assert await store.like(new_check()) == ended(second, 1.0)
        assert await store.like(new_check("a1", "a4")) is None

    with_store(tmp_path, work)


def test_a_past_without_a_reference_is_the_baseline_where_none_was_ok(tmp_path: Path) -> None:
    unsure = Verdict(outcome="unknown", reason="threshold")
    failed = Verdict(outcome="unknown", reason="harness")
    well, first, second = new_check(), new_check(), new_check()

    async def work(store: Store) -> None:
        for number, (check, verdict) in enumerate(((first, unsure), (second, failed))):
            await store.add(check, "")
            await store.finish(replace(ended(check, float(number)), verdict=verdict), [])
        found = await store.like(new_check())
        assert found is not None
        assert (found.id, found.verdict) == (first.id, unsure)
        await store.add(well, "")
        await store.finish(ended(well, 3.0), [])
        assert await store.like(new_check()) == ended(well, 3.0)

    with_store(tmp_path, work)


def test_old_checks_and_too_many_are_removed_but_none_that_runs(tmp_path: Path) -> None:
    checks = [new_check(created=float(number)) for number in range(10)]

    async def work(store: Store) -> None:
        for number, check in enumerate(checks):
            await store.add(check, "")
            if number:
                await store.finish(ended(check), [RunResult(number=0, nodes=("a1",))])
        assert await store.prune(3.0, 100) == 2
        left = [one.created for one in await store.list(100, "", "", "", "")]
        assert left == [9, 8, 7, 6, 5, 4, 3, 0]
        assert await store.prune(0.0, 3) == 4
        left = [one.created for one in await store.list(100, "", "", "", "")]
        assert left == [9, 8, 7, 0]

    with_store(tmp_path, work)
    with sqlite3.connect(tmp_path / check_tables.FILE_NAME) as connection:
        assert connection.execute("SELECT count(*) FROM results").fetchone() == (3,)
    connection.close()


@pytest.mark.parametrize("damage", ["head", "middle", "no database", "empty", "folder"])
def test_a_damaged_file_is_set_aside_and_named(tmp_path: Path, damage: str) -> None:
    async def fill(store: Store) -> None:
        for number in range(50):
            check = new_check(created=float(number))
            await store.add(check, "")
            await store.finish(ended(check), [RunResult(number=0, nodes=("a1",))])

    async def use(store: Store) -> None:
        await store.add(new_check(), "")
        assert await store.list(100, "", "", "", "")

    with_store(tmp_path, fill)
    path = tmp_path / check_tables.FILE_NAME
    data = bytearray(path.read_bytes())
    if damage == "head":
        data[:100] = bytes(100)
    elif damage == "middle":
        data[4096 * 2 : 4096 * 5] = b"\xff" * 4096 * 3
    elif damage == "empty":
        data = bytearray()
    else:
        data = bytearray(b"not a database\n" * 1000)
    if damage == "folder":
        path.unlink()
        (path / "x").mkdir(parents=True)
    else:
        path.write_bytes(data)
    lost = with_store(tmp_path, use)
    assert "is damaged" in lost
    assert "\n" not in lost
    assert len(list(tmp_path.glob("hub.db.damaged-*Z"))) == 1
    assert with_store(tmp_path, use) == ""


def test_a_file_of_a_newer_version_is_refused_and_left_alone(tmp_path: Path) -> None:
    path = tmp_path / check_tables.FILE_NAME
    connection = sqlite3.connect(path)
    connection.execute("PRAGMA user_version = 99")
    connection.close()
    before = path.read_bytes()
    with pytest.raises(StoreError, match="newer version"):
        Store(str(tmp_path))
    assert path.read_bytes() == before


def test_a_second_store_on_the_directory_is_refused(tmp_path: Path) -> None:
    async def work(store: Store) -> None:
        with pytest.raises(StoreError, match="another hub on"):
            await asyncio.to_thread(Store, str(tmp_path))

    with_store(tmp_path, work)


def test_a_full_disk_refuses_and_loses_nothing(tmp_path: Path) -> None:
    check = new_check()

    async def work(store: Store) -> None:
        await store.add(check, "")
        [[pages]] = store._connection.execute("PRAGMA page_count").fetchall()
        store._connection.execute(f"PRAGMA max_page_count = {pages}")
        with pytest.raises(StoreError, match="full") as raised:
            for _ in range(100):
                await store.add(new_check(*(f"node-{n}" for n in range(500))), "")
        assert "\n" not in str(raised.value)
        assert (await store.list(10, "", "", "", ""))[-1] == check
        store._connection.execute("PRAGMA max_page_count = 100000")
        assert await store.finish(ended(check), [])

    with_store(tmp_path, work)


def test_a_record_that_cannot_be_read_hides_no_other_one(tmp_path: Path) -> None:
    """A bit that flipped within a record is a sound file to SQLite."""
    checks = [new_check(), new_check(), new_check()]

    async def before(store: Store) -> None:
        for check in checks:
            await store.add(check, "")

    async def after(store: Store) -> None:
        listed = await store.list(10, "", "", "", "")
        assert [one.id for one in listed] == [checks[2].id, checks[0].id]
        assert await store.list(2, "", "", "", "") == listed
        assert [one.check.id for one in await store.unfinished()] == [checks[0].id, checks[2].id]

    with_store(tmp_path, before)
    with sqlite3.connect(tmp_path / check_tables.FILE_NAME) as connection:
        flipped = "UPDATE checks SET record = replace(record, '\"pair\"', '\"qair\"') WHERE id = ?"
        connection.execute(flipped, (checks[1].id,))
    connection.close()
    with_store(tmp_path, after)
