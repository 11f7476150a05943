"""Statements that copy what can be read of a damaged respond.db to a new one."""

from __future__ import annotations

import sqlite3
from collections import Counter

from nodevitals_hub.store import aside_tables, sound_files

# By what the rows of each table are read, and kept, in the order in which they were written.
_ORDERS = {
    "inbox": "number",
    "seen": "key",
    "groups": "key",
    "deliveries": "rowid",
    "incidents": "rowid",
    "isolations": "rowid",
    "repairs": "rowid",
    "drills": "rowid",
    "facts": "name",
    "aside": "rowid",
}


def copy(source: sqlite3.Connection, target: sqlite3.Connection) -> str:
    """Copy the rows that can be read, and note that the file was damaged."""
    kept: Counter[str] = Counter()
    with target:
        target.execute("BEGIN")
        for table, order in _ORDERS.items():
            names = [row[1] for row in target.execute(f"PRAGMA table_info({table})")]
            columns = ", ".join(["rowid", *names] if order == "rowid" else names)
            marks = ", ".join("?" * (columns.count(",") + 1))
            into = f"INSERT OR IGNORE INTO {table} ({columns}) VALUES ({marks})"
            for row in sound_files.readable(source, f"SELECT {columns} FROM {table}", order):
                kept[table] += target.execute(into, row).rowcount
        # The number of a message is part of what names its deliveries.
        target.execute("DELETE FROM sqlite_sequence")
        target.execute(
            "INSERT INTO sqlite_sequence (name, seq) SELECT 'inbox', coalesce(max(number), 0)"
            " FROM (SELECT number FROM inbox UNION SELECT CAST(id AS INTEGER) FROM deliveries)"
        )
        aside_tables.set_aside(target, "file", "respond.db", None, "is damaged")
    rows = ", ".join(f"{name} {number}" for name, number in kept.items() if number)
    return f"rows that were kept: {rows or 'none'}"
