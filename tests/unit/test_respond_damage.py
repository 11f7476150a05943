"""A damaged respond.db, or something else in its place: the hub begins a new one."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import pytest

from nodevitals_hub.records import Alert, Delivery, Message
from nodevitals_hub.store import delivery_tables, inbox_tables
from nodevitals_hub.store.check_store import StoreError
from nodevitals_hub.store.response_database import Database
from testbed.node import SOURCES

Result = TypeVar("Result")
DELIVERIES, PAGE = 60, 4096
NAMES = {f"{number}-chat" for number in range(1, DELIVERIES + 1)}


def done(folder: Path, *works: Callable[[sqlite3.Connection], Result]) -> tuple[list[Result], str]:
    """What transactions return, and what was lost as the file was opened."""

    async def main() -> tuple[list[Result], str]:
        database = Database(str(folder))
        try:
            return [await database.do(work) for work in works], database.lost
        finally:
            await database.close()

    return asyncio.run(main())


def message(number: int) -> Message:
    alert = Alert(status="firing", fingerprint=f"{number:x}", labels={"alertname": "A"})
    return Message(
        version="4", group_key=f"g{number}", receiver="r", status="firing", alerts=(alert,)
    )


def add(connection: sqlite3.Connection) -> None:
    inbox_tables.add(connection, message(connection.total_changes), ["notify"], 1e9, 3600.0)


def waiting(connection: sqlite3.Connection) -> set[str]:
    """The deliveries that wait, read as a sender reads them."""
    return {one.id for one in delivery_tables.due(connection, "chat", 2e9, 1000)}


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file as a killed hub leaves it: its last third is in the log only."""
    folder, copy = tmp_path_factory.mktemp("filled"), tmp_path_factory.mktemp("copy")

    def fill(connection: sqlite3.Connection) -> None:
        connection.execute("COMMIT")
        for number in range(1, DELIVERIES + 1):
            one = Delivery(
                id=f"{number}-chat", channel="chat", created=1e9, title="t", text="x" * 900
            )
            connection.execute("BEGIN")
            delivery_tables.write(connection, [one])
            connection.execute("COMMIT")
            if number == DELIVERIES * 2 // 3:
                connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
                connection.execute("PRAGMA wal_autocheckpoint = 0")
        shutil.copytree(folder, copy, dirs_exist_ok=True)
        connection.execute("BEGIN")

    done(folder, fill)
    assert (copy / "respond.db-wal").stat().st_size > 0
    return copy


def pages_of(path: Path, table: str) -> list[int]:
    """Offsets of the leaves of a table, in the order of its rows."""
    data, found = path.read_bytes(), []
    for offset in range(0, len(data), PAGE):
        if data[offset] == 13 and f'-{table}"'.encode() in data[offset : offset + PAGE]:
            found.append(offset)
    return found


def damage(path: Path, kind: str) -> None:
    data = bytearray(path.read_bytes())
    leaves = pages_of(path, "chat")
    middle = leaves[len(leaves) // 2]
    if kind == "zero-filled page":
        data[middle : middle + PAGE] = bytes(PAGE)
    elif kind == "truncated":
        del data[len(data) * 2 // 3 :]
    elif kind == "head":
        data[:100] = bytes(100)
        Path(f"{path}-wal").unlink()  # it has another copy
    elif kind == "text":
        data = bytearray(b"not a database\n" * 1000)
    elif kind == "empty":
        data = bytearray()
    path.unlink()
    if kind == "directory":
        (path / "x").mkdir(parents=True)
    elif kind == "fifo":
        os.mkfifo(path)
    else:
        path.write_bytes(data)


@pytest.mark.parametrize(
    "kind", ["zero-filled page", "truncated", "head", "text", "empty", "directory", "fifo"]
)
def test_a_damaged_file_is_set_aside_and_a_new_one_begun(
    filled: Path, tmp_path: Path, kind: str
) -> None:
    shutil.copytree(filled, tmp_path, dirs_exist_ok=True)
    path = tmp_path / "respond.db"
    damage(path, kind)
    [found], lost = done(tmp_path, waiting)
    assert "respond.db is damaged (" in lost
    assert "\n" not in lost
    assert found == set()
    assert len(list(tmp_path.glob("respond.db.damaged-*Z"))) == 1
    (_, again), lost = done(tmp_path, add, waiting)
    assert (again, lost) == (found, "")


def test_what_was_lost_is_known_also_after_a_restart(tmp_path: Path) -> None:
    (tmp_path / "respond.db").write_bytes(b"text" * 1000)
    before = time.time()

    async def main() -> list[float]:
        database = Database(str(tmp_path))
        await database.do(waiting)
        await database.close()
        return database.set_aside

    [first] = asyncio.run(main())
    assert before - 1 <= first <= time.time()
    assert asyncio.run(main()) == [first]


KILLED = """
import asyncio, os, signal, sys
from nodevitals_hub.store.response_database import Database
left = int(sys.argv[2])
def look(event, _):
    global left
    if event in ("os.rename", "os.remove", "sqlite3.connect"):
        left -= 1
        if not left:
            os.kill(os.getpid(), signal.SIGKILL)
sys.addaudithook(look)
asyncio.run(Database(sys.argv[1]).do(lambda one: None))
os._exit(0)
"""


def test_a_kill_at_any_step_leaves_the_damaged_file_and_a_new_one(
    filled: Path, tmp_path: Path
) -> None:
    whole = tmp_path / "whole"
    shutil.copytree(filled, whole)
    damage(whole / "respond.db", "zero-filled page")
    environment = {**os.environ, "PYTHONPATH": SOURCES}
    for step in range(1, 100):
        folder = tmp_path / str(step)
        shutil.copytree(whole, folder)
        argv = [sys.executable, "-c", KILLED, str(folder), str(step)]
        status = subprocess.run(argv, env=environment, timeout=60, check=False).returncode
        (_, found), _ = done(folder, add, waiting)
        assert found == set(), step
        aside = [
            file.name for file in folder.glob("respond.db.damaged-*") if "-wal" not in file.name
        ]
        assert len([name for name in aside if "-shm" not in name]) == 1, (step, aside)
        if status == 0:
            break
        assert status == -signal.SIGKILL
    assert step >= 3


def test_a_file_that_is_damaged_while_it_is_used_is_replaced(filled: Path, tmp_path: Path) -> None:
    async def main() -> tuple[set[str], set[str], str]:
        database = Database(str(tmp_path))
        await database.do(lambda one: delivery_tables.write(one, deliveries()))
        await database.do(lambda one: one.execute("PRAGMA cache_size = 0").close())
        with sqlite3.connect(tmp_path / "respond.db") as other:
            other.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        other.close()
        offset = pages_of(tmp_path / "respond.db", "chat")[3]
        with (tmp_path / "respond.db").open("r+b") as file:
            file.seek(offset)
            file.write(bytes(PAGE))
        found = await database.do(waiting)
        await database.do(add)
        again = await database.do(waiting)
        await database.close()
        return found, again, database.lost

    found, again, lost = asyncio.run(main())
    assert found == again == set()
    assert "is damaged" in lost


def deliveries() -> list[Delivery]:
    return [
        Delivery(id=name, channel="chat", created=1e9, title="t", text="x" * 900)
        for name in sorted(NAMES)
    ]


def test_a_table_that_is_missing_is_damage(tmp_path: Path) -> None:
    done(tmp_path, add)
    with sqlite3.connect(tmp_path / "respond.db") as connection:
        connection.execute("DROP TABLE deliveries")
    connection.close()
    _, lost = done(tmp_path, add, waiting)
    assert "are not those of its version" in lost


def test_a_file_of_a_newer_version_is_refused_and_left_alone(tmp_path: Path) -> None:
    with sqlite3.connect(tmp_path / "respond.db") as connection:
        connection.execute("PRAGMA user_version = 99")
    connection.close()
    with pytest.raises(StoreError, match="newer version"):
        done(tmp_path, add)
    assert [one.name for one in tmp_path.iterdir()] == ["respond.db"]


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to become another user")
@pytest.mark.parametrize("mode", [0o444, 0o000])
def test_a_file_that_may_not_be_written_is_left_alone_and_used_once_it_may(
    tmp_path: Path, mode: int
) -> None:
    """Of another user, or read-only."""
    done(tmp_path, add)
    path = tmp_path / "respond.db"
    for place in tmp_path.parents[:2]:
        place.chmod(0o711)
    tmp_path.chmod(0o777)
    path.chmod(mode)
    argv = ["setpriv", "--reuid=65534", "--clear-groups", sys.executable]
    argv += ["-c", OTHER, str(tmp_path)]
    environment = {**os.environ, "PYTHONPATH": SOURCES}
    child = subprocess.run(argv, env=environment, capture_output=True, timeout=60, check=False)
    assert child.returncode == 3, child.stderr
    assert b"respond.db: " in child.stdout
    assert b"\n" not in child.stdout.strip()
    assert not list(tmp_path.glob("*damaged*"))
    (tmp_path / "respond.db-wal").unlink(missing_ok=True)
    (tmp_path / "respond.db-shm").unlink(missing_ok=True)
    assert done(tmp_path, add)[1] == ""


OTHER = """
import asyncio, sys
from nodevitals_hub.store.response_database import Database
from nodevitals_hub.store.check_store import StoreError
try:
    asyncio.run(Database(sys.argv[1]).do(lambda one: one.execute("DELETE FROM facts")))
except StoreError as error:
    print(error, flush=True)
    sys.exit(3)
"""
