"""Statements for isolations: functions of a connection, each within a transaction.

The column `state` of a canceled isolation whose faults have not ended is `watched`. An isolation
that cannot be decoded is set aside. Its id then belongs to no isolation, so its mark on a node is
foreign: the hub reports the mark and does not remove it. If the node was out of service, or left
alone on purpose, a refused isolation with a new id replaces the lost one: nothing is done for the
node before its faults have ended, unless a person approves it.
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable, Iterable, Sequence

import msgspec

from nodevitals_hub.checks.coordinator import new_identity
from nodevitals_hub.isolation.isolation_states import is_watched, with_step
from nodevitals_hub.isolation.ledger import WEEK_SECONDS, Act, Ledger
from nodevitals_hub.records import Isolation
from nodevitals_hub.store import aside_tables

LEDGER = "isolations"
WATCHED = "watched"
HELD_STATES = ("refused", "isolated", "testing", "kept", WATCHED)
"""In these states, a new isolation would contradict an earlier decision or a person's act."""
KEEP_SECONDS = 200 * 86400.0
MAX_LISTED = 1000


def followed(connection: sqlite3.Connection) -> list[Isolation]:
    """The open isolations, and the canceled ones whose faults have not ended; the oldest first."""
    states = "('waiting', 'refused', 'isolated', 'testing', 'kept', 'watched')"
    return _read(connection, f"WHERE state IN {states} ORDER BY created, id")


def newest(connection: sqlite3.Connection, limit: int) -> list[Isolation]:
    """The newest that have ended."""
    return _read(
        connection,
        "WHERE state NOT IN ('waiting', 'refused', 'isolated', 'testing', 'kept')"
        " ORDER BY created DESC, id DESC LIMIT ?",
        (min(limit, MAX_LISTED),),
    )


def recent(connection: sqlite3.Connection, since: float) -> list[Isolation]:
    """Isolations created since then that do not, or no longer, keep a node out of service."""
    return _read(
        connection,
        "WHERE created >= ? AND state NOT IN ('waiting', 'isolated', 'testing', 'kept')"
        " ORDER BY created DESC, id DESC LIMIT ?",
        (since, MAX_LISTED),
    )


def get(connection: sqlite3.Connection, identity: str) -> Isolation | None:
    """One isolation."""
    isolations = _read(connection, "WHERE id = ?", (identity,))
    return isolations[0] if isolations else None


def put(connection: sqlite3.Connection, isolations: Iterable[Isolation]) -> None:
    """Write isolations, new ones or not."""
    connection.executemany(
        "INSERT INTO isolations (id, node, state, created, record) VALUES (?, ?, ?, ?, ?)"
        " ON CONFLICT (id) DO UPDATE SET state = excluded.state, record = excluded.record",
        [
            (
                isolation.id,
                isolation.node,
                WATCHED if is_watched(isolation) else isolation.state,
                isolation.created,
                msgspec.json.encode(isolation),
            )
            for isolation in isolations
        ],
    )


def change(
    connection: sqlite3.Connection, identity: str, act: Callable[[Isolation], Isolation]
) -> tuple[Isolation | None, Isolation | None]:
    """Replace one by the result of a function; returns it before and after."""
    before = get(connection, identity)
    if before is None:
        return None, None
    after = act(before)
    if after != before:
        put(connection, [after])
    return before, after


def ledger(connection: sqlite3.Connection) -> Ledger:
    """The ledger. A missing one is made from the isolations."""
    remembered = aside_tables.fact(connection, LEDGER, msgspec.json.Decoder(Ledger).decode)
    if remembered is None:
        remembered = _remade(_read(connection, "ORDER BY created, id"), time.time())
        put_ledger(connection, remembered)
    return remembered


def put_ledger(connection: sqlite3.Connection, value: Ledger) -> None:
    """Write the ledger."""
    connection.execute(
        "INSERT INTO facts (name, value) VALUES (?, ?)"
        " ON CONFLICT (name) DO UPDATE SET value = excluded.value",
        (LEDGER, msgspec.json.encode(value)),
    )


def prune(connection: sqlite3.Connection, now: float) -> None:
    """Remove isolations that ended long ago."""
    connection.execute(
        "DELETE FROM isolations WHERE created < ? AND state NOT IN"
        " ('waiting', 'refused', 'isolated', 'testing', 'kept', 'watched')",
        (now - KEEP_SECONDS,),
    )


def _remade(isolations: Sequence[Isolation], now: float) -> Ledger:
    """A ledger made from isolations. Ages by the monotonic clock are not known, so each act counts
    for the limit per hour. For the breaker, all faults are new.
    """
    acts = tuple(
        Act(
            node=isolation.node,
            pool=isolation.pool,
            time=isolation.decided,
            dry_run=isolation.dry_run,
        )
        for isolation in isolations
        if isolation.decided is not None and now - isolation.decided < WEEK_SECONDS
    )
    returned: dict[str, float] = {}
    for isolation in isolations:
        if (
            isolation.state == "returned"
            and isolation.ended is not None
            and now - isolation.ended < WEEK_SECONDS
        ):
            returned[isolation.node] = max(
                isolation.ended, returned.get(isolation.node, isolation.ended)
            )
    return Ledger(acts=acts, returned=returned)


def _read(
    connection: sqlite3.Connection, rest: str, values: Sequence[object] = ()
) -> list[Isolation]:
    decode = msgspec.json.Decoder(Isolation).decode
    return aside_tables.read(connection, "isolation", rest, values, decode, instead=_lose)


def _lose(connection: sqlite3.Connection, number: int) -> None:
    """Remove an isolation that cannot be decoded; its node stays as it is."""
    chosen = "SELECT id, node, state FROM isolations WHERE rowid = ?"
    name, node, state = connection.execute(chosen, (number,)).fetchone()
    connection.execute("DELETE FROM isolations WHERE rowid = ?", (number,))
    if state not in HELD_STATES or not isinstance(node, str):
        return
    others = "SELECT 1 FROM isolations WHERE node = ? AND state = 'refused'"
    if connection.execute(others, (node,)).fetchone():
        return
    now = time.time()
    made = Isolation(
        id=new_identity(), node=node, dry_run=False, state="refused", faults=(), created=now
    )
    text = f"the record of isolation {str(name)[:60]} cannot be read: the node is left as it is"
    put(connection, [with_step(made, now, text)])
