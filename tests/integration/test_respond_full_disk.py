"""A full disk at each statement between a message of Alertmanager and its notification."""

from __future__ import annotations

import resource
import sqlite3
from contextlib import closing
from pathlib import Path

import psutil

from testbed.hub import HubProcess
from testbed.node import wait_until
from testbed.notifykills import FarSide, hub_with_channels, message, send

PAGE_BYTES = 4096
PAGES = (0, 2, 4, 5, 7, 9, 12, 60)
"""From none to more than a message, its incident and its notification need together."""


def fill(hub: HubProcess, pages: int | None) -> None:
    """Leave room for some pages in the log of respond.db; None for any number."""
    assert hub.process is not None
    most = resource.RLIM_INFINITY
    if pages is not None:
        size = (hub.state / "respond.db-wal").stat().st_size
        most = size + pages * (PAGE_BYTES + 24)
    process = psutil.Process(hub.process.pid)
    process.rlimit(resource.RLIMIT_FSIZE, (most, resource.RLIM_INFINITY))


def is_idle(hub: HubProcess) -> bool:
    """Whether nothing waits."""
    with closing(sqlite3.connect(hub.state / "respond.db")) as connection:
        waiting = "SELECT (SELECT count(*) FROM inbox) + count(*) FROM deliveries"
        [number] = connection.execute(f"{waiting} WHERE state = 'waiting'").fetchone()
    return int(number) == 0


def test_nothing_is_lost_and_nothing_is_sent_twice(tmp_path: Path) -> None:
    """One message is on its way as the disk is full; the other one comes then."""
    with FarSide() as far, hub_with_channels(tmp_path, far) as hub:
        outcomes = set[str]()
        assert send(hub, message(1000)).ok
        wait_until(lambda: is_idle(hub), 20, "the first one")
        for pages in PAGES:
            outcomes.add(step(hub, far, pages))
        wanted = {1000, *(2 * one + more for one in PAGES for more in (0, 1))}
        assert far.numbers("first") == dict.fromkeys(wanted, 1)
        assert outcomes == {"refused", "failed", "processed"}
        assert "Traceback" not in hub.log.read_text()


def step(hub: HubProcess, far: FarSide, pages: int) -> str:
    """Send two messages, the second one when so many pages are left; what came of it then."""
    on_its_way, comes = 2 * pages, 2 * pages + 1
    far.hold.clear()
    assert send(hub, message(on_its_way)).ok
    wait_until(lambda: far.pending == 1, 20, "its attempt")
    wait_until(lambda: rows(hub, "inbox") == 0, 20, "its incident")
    fill(hub, pages)
    before = problems(hub)
    answer = send(hub, message(comes))
    outcome = "refused"
    if answer.ok:
        wait_until(lambda: problems(hub) > before or rows(hub, "inbox") == 0, 20, "either")
        outcome = "failed" if problems(hub) > before else "processed"
    else:
        assert answer.status_code == 503
        assert "respond.db" in answer.json()["error"]
    far.hold.set()
    wait_until(lambda: far.numbers("first")[on_its_way] > 0, 20, "the one on its way")
    fill(hub, None)
    if not answer.ok:
        assert send(hub, message(comes)).json() == {"new": True}
    wait_until(lambda: is_idle(hub), 60, f"both, after {pages} pages; {hub.log}")
    return outcome


def rows(hub: HubProcess, table: str) -> int:
    """Number of rows."""
    with closing(sqlite3.connect(hub.state / "respond.db")) as connection:
        return int(connection.execute(f"SELECT count(*) FROM {table}").fetchone()[0])


def problems(hub: HubProcess) -> int:
    """How often the log says that the file cannot be written."""
    return hub.log.read_text().count("it is tried again")
