"""Statements for repairs: functions of a connection, each within a transaction.

In: repairs, conditions. Out: repairs. Each change of state is a step of its isolation as well.
A record that cannot be decoded is set aside, and another one with the same id takes its place: the
repair is not started a second time for its isolation, and a person looks at one that may run.
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
    """One that was started within the hour."""

    name: str
    dry_run: bool
    age: float = 0.0
    """Seconds since then in which a hub was there, by the monotonic clock."""


_DECODE = msgspec.json.Decoder(Repair).decode


def running(connection: sqlite3.Connection) -> list[Repair]:
    """Those that were decided and have not ended; the oldest first."""
    return _read(connection, "WHERE state IN ('wanted', 'started') ORDER BY created, id")


def of_isolations(connection: sqlite3.Connection, identities: Sequence[str]) -> list[Repair]:
    """All repairs of these; the oldest first."""
    found: list[Repair] = []
    for identity in identities:
        found += _read(connection, "WHERE isolation = ? ORDER BY created, id", (identity,))
    return found


def get(connection: sqlite3.Connection, identity: str) -> Repair | None:
    """One repair."""
    found = _read(connection, "WHERE id = ?", (identity,))
    return found[0] if found else None


def put(connection: sqlite3.Connection, repair: Repair) -> None:
    """Write a repair, a new one or not."""
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
    """Write a new repair, if its isolation still permits it, it is the first of its name there, no
    other one runs on the node, and the limits allow it; else, why not.
    """
    isolation = isolation_tables.get(connection, repair.isolation)
    if isolation is None or not holds(isolation) or get(connection, repair.id) is not None:
        return "its conditions have ended"
    others = running(connection)
    if any(one.isolation == repair.isolation for one in others):
        return "another repair of the node runs"
    dry_run = repair.state == "dry_run"
    ages = starts(connection)
    hour = [one for one in ages if one.name == settings.name and one.dry_run == dry_run]
    if len(hour) >= settings.per_hour:
        return f"limit: {len(hour)} within the hour (per_hour: {settings.per_hour})"
    same = sum(one.name == settings.name for one in others)
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
    """Replace one by what a function makes of it: before and after."""
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
    """Those within the hour. Where they are lost, all repairs of the last hour count as new."""
    found = aside_tables.fact(connection, STARTS, msgspec.json.Decoder(list[Start]).decode)
    if found is None:
        repairs = _read(connection, "WHERE created >= ?", (time.time() - HOUR_SECONDS,))
        found = [Start(name=one.name, dry_run=one.state == "dry_run") for one in repairs]
        _put_starts(connection, found)
    return found


def grow(connection: sqlite3.Connection, seconds: float) -> None:
    """Time has passed: for those that run, and for the limit of an hour."""
    for one in running(connection):
        put(connection, replace(one, lasted=one.lasted + seconds))
    before = starts(connection)
    after = [replace(one, age=one.age + seconds) for one in before]
    if before:
        _put_starts(connection, [one for one in after if one.age < HOUR_SECONDS])


def prune(connection: sqlite3.Connection, now: float) -> None:
    """Remove what ended long ago."""
    connection.execute(
        "DELETE FROM repairs WHERE created < ? AND state NOT IN ('wanted', 'started')",
        (now - KEEP_SECONDS,),
    )


def _put_starts(connection: sqlite3.Connection, found: Sequence[Start]) -> None:
    connection.execute(
        "INSERT INTO facts (name, value) VALUES (?, ?)"
        " ON CONFLICT (name) DO UPDATE SET value = excluded.value",
        (STARTS, msgspec.json.encode(found)),
    )


def _note(connection: sqlite3.Connection, repair: Repair, now: float) -> None:
    """A step of the isolation; the reason for its state stays."""
    step = Step(now, repair.line)

    def noted(one: Isolation) -> Isolation:
        return replace(one, steps=(*one.steps, step)[-MAX_STEPS:])

    isolation_tables.change(connection, repair.isolation, noted)


def _read(connection: sqlite3.Connection, rest: str, values: Sequence[object] = ()) -> list[Repair]:
    return aside_tables.read(connection, "repair", rest, values, _DECODE, instead=_replace)


def _replace(connection: sqlite3.Connection, number: int) -> None:
    """Replace one that cannot be decoded by what its columns say."""
    chosen = "SELECT id, isolation, state, created FROM repairs WHERE rowid = ?"
    name, isolation, was, created = connection.execute(chosen, (number,)).fetchone()
    connection.execute("DELETE FROM repairs WHERE rowid = ?", (number,))
    # What it had started, and where, is not known: it cannot be watched to its end.
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
    except aside_tables.ERRORS:  # the columns are damaged as well: it is of no isolation
        return
    put(connection, made)
