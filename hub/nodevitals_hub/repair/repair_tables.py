"""Database statements for repairs; each function runs within a transaction of its connection.

In: repairs, conditions. Out: repairs. Each change of state is also recorded as a step of the
isolation. A record that cannot be decoded is set aside and replaced by one with the same id: the
repair is not started a second time for its isolation, and a person checks one that may be running.
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable, Sequence
from typing import get_args

import msgspec
from msgspec.structs import replace

from nodevitals_hub.isolation import isolation_tables
from nodevitals_hub.isolation.isolation_states import MAX_STEPS
from nodevitals_hub.records import Isolation, Step
from nodevitals_hub.repair.repair_records import RUNNING_STATES, Repair, RepairState
from nodevitals_hub.settings.repairs import RepairSettings
from nodevitals_hub.store import aside_tables

STARTS = "repairs"
HOUR_SECONDS = 3600.0
KEEP_SECONDS = isolation_tables.KEEP_SECONDS


class Start(msgspec.Struct, frozen=True, kw_only=True):
    """A repair that was started within the last hour."""

    name: str
    dry_run: bool
    age: float = 0.0
    """Seconds since then in which a hub was there, by the monotonic clock."""


_DECODE = msgspec.json.Decoder(Repair).decode


def running(connection: sqlite3.Connection) -> list[Repair]:
    """Repairs that are to start or run, oldest first."""
    return _read(connection, "WHERE state IN ('wanted', 'started') ORDER BY created, id")


def of_isolations(connection: sqlite3.Connection, identities: Sequence[str]) -> list[Repair]:
    """All repairs of these isolations, oldest first."""
    repairs: list[Repair] = []
    for identity in identities:
        repairs += _read(connection, "WHERE isolation = ? ORDER BY created, id", (identity,))
    return repairs


def get(connection: sqlite3.Connection, identity: str) -> Repair | None:
    """One repair."""
    repairs = _read(connection, "WHERE id = ?", (identity,))
    return repairs[0] if repairs else None


def put(connection: sqlite3.Connection, repair: Repair) -> None:
    """Insert or replace a repair."""
    connection.execute(
        "INSERT INTO repairs (id, isolation, state, created, record) VALUES (?, ?, ?, ?, ?)"
        " ON CONFLICT (id) DO UPDATE SET state = excluded.state, record = excluded.record",
        (repair.id, repair.isolation, repair.state, repair.created, msgspec.json.encode(repair)),
    )


def admit(
    connection: sqlite3.Connection,
    repair: Repair,
    settings: RepairSettings,
    holds: Callable[[Isolation], bool],
    now: float,
) -> str:
    """Write a new repair if its isolation still permits it, it is the isolation's first of this
    name, no other repair runs on the node, and the limits allow it. Returns '' or why not.
    """
    isolation = isolation_tables.get(connection, repair.isolation)
    if isolation is None or not holds(isolation) or get(connection, repair.id) is not None:
        return "its conditions have ended"
    others = running(connection)
    if any(other.isolation == repair.isolation for other in others):
        return "another repair of the node runs"
    dry_run = repair.state == "dry_run"
    ages = starts(connection)
    hour = [start for start in ages if start.name == settings.name and start.dry_run == dry_run]
    if len(hour) >= settings.per_hour:
        return f"limit: {len(hour)} within the hour (per_hour: {settings.per_hour})"
    same = sum(other.name == settings.name for other in others)
    if not dry_run and same >= settings.at_most:
        return f"limit: {same} run (at_most: {settings.at_most})"
    put(connection, repair)
    if repair.state in ("wanted", "dry_run"):
        _put_starts(connection, [*ages, Start(name=settings.name, dry_run=dry_run)])
    _note(connection, repair, now)
    return ""


def change(
    connection: sqlite3.Connection, identity: str, act: Callable[[Repair], Repair], now: float
) -> tuple[Repair | None, Repair | None]:
    """Change a repair by a function. Returns the repair before and after."""
    before = get(connection, identity)
    if before is None:
        return None, None
    after = act(before)
    if after != before:
        put(connection, after)
        if after.state != before.state:
            _note(connection, after, now)
    return before, after


def starts(connection: sqlite3.Connection) -> list[Start]:
    """The starts within the last hour. Where they are lost, all recent repairs count as new."""
    recent = aside_tables.fact(connection, STARTS, msgspec.json.Decoder(list[Start]).decode)
    if recent is None:
        repairs = _read(connection, "WHERE created >= ?", (time.time() - HOUR_SECONDS,))
        recent = [Start(name=repair.name, dry_run=repair.state == "dry_run") for repair in repairs]
        _put_starts(connection, recent)
    return recent


def grow(connection: sqlite3.Connection, seconds: float) -> None:
    """Add `seconds` to the time of running repairs, and to the ages of recent starts."""
    for repair in running(connection):
        put(connection, replace(repair, lasted=repair.lasted + seconds))
    before = starts(connection)
    after = [replace(start, age=start.age + seconds) for start in before]
    if before:
        _put_starts(connection, [start for start in after if start.age < HOUR_SECONDS])


def prune(connection: sqlite3.Connection, now: float) -> None:
    """Remove repairs that ended long ago."""
    connection.execute(
        "DELETE FROM repairs WHERE created < ? AND state NOT IN ('wanted', 'started')",
        (now - KEEP_SECONDS,),
    )


def _put_starts(connection: sqlite3.Connection, recent: Sequence[Start]) -> None:
    connection.execute(
        "INSERT INTO facts (name, value) VALUES (?, ?)"
        " ON CONFLICT (name) DO UPDATE SET value = excluded.value",
        (STARTS, msgspec.json.encode(recent)),
    )


def _note(connection: sqlite3.Connection, repair: Repair, now: float) -> None:
    """Record a step of the isolation; the reason for its state is kept."""
    step = Step(now, repair.line)

    def noted(isolation: Isolation) -> Isolation:
        return replace(isolation, steps=(*isolation.steps, step)[-MAX_STEPS:])

    isolation_tables.change(connection, repair.isolation, noted)


def _read(connection: sqlite3.Connection, rest: str, values: Sequence[object] = ()) -> list[Repair]:
    return aside_tables.read(connection, "repair", rest, values, _DECODE, instead=_replace)


def _replace(connection: sqlite3.Connection, number: int) -> None:
    """Replace a record that cannot be decoded by one made from its columns."""
    chosen = "SELECT id, isolation, state, created FROM repairs WHERE rowid = ?"
    name, isolation, was, created = connection.execute(chosen, (number,)).fetchone()
    connection.execute("DELETE FROM repairs WHERE rowid = ?", (number,))
    # It is not known what the repair had started, and where: it cannot be followed to its end.
    has_ended = was in get_args(RepairState) and was not in RUNNING_STATES
    made = Repair(
        id=name,
        isolation=isolation,
        name=str(name)[len(str(isolation)) + 1 :],
        node="",
        fault="",
        state=was if has_ended else "unknown",
        created=created,
        timeout=0.0,
        text="its record cannot be read",
    )
    try:
        _DECODE(msgspec.json.encode(made))
    except aside_tables.ERRORS:  # the columns are damaged as well: its isolation is unknown
        return
    put(connection, made)
