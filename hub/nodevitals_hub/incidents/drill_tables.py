"""Statements on the table `drills`.

Functions of a connection, within the caller's transaction.
"""

from __future__ import annotations

import sqlite3

import msgspec

from nodevitals_hub.records import Drill
from nodevitals_hub.store import aside_tables

_drill = msgspec.json.Decoder(Drill).decode


def write(connection: sqlite3.Connection, drill: Drill) -> None:
    """Store a drill, or its end."""
    connection.execute(
        "INSERT OR REPLACE INTO drills VALUES (?, ?, ?)",
        (drill.id, drill.until, msgspec.json.encode(drill)),
    )


def newest(connection: sqlite3.Connection, most: int) -> list[Drill]:
    """The newest drills first."""
    return aside_tables.read(connection, "drill", "ORDER BY id DESC LIMIT ?", (most,), _drill)


def prune(connection: sqlite3.Connection, most: int) -> None:
    """Remove the oldest beyond a number."""
    connection.execute(
        "DELETE FROM drills WHERE id NOT IN (SELECT id FROM drills ORDER BY id DESC LIMIT ?)",
        (most,),
    )
