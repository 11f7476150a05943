"""Statements on the table `incidents`.

Functions of a connection, within the caller's transaction.
"""

from __future__ import annotations

import sqlite3

import msgspec

from nodevitals_hub.records import Incident
from nodevitals_hub.store import aside_tables

_incident = msgspec.json.Decoder(Incident).decode


def write(connection: sqlite3.Connection, incident: Incident) -> None:
    """Store an incident, or its new state."""
    connection.execute(
        "INSERT INTO incidents (id, key, opened, resolved, node, record) VALUES (?, ?, ?, ?, ?, ?)"
        " ON CONFLICT (id) DO UPDATE SET resolved = excluded.resolved, record = excluded.record",
        (
            *(incident.id, incident.key, incident.opened, incident.resolved, incident.node),
            msgspec.json.encode(incident),
        ),
    )


def get(connection: sqlite3.Connection, identity: str) -> Incident | None:
    """One incident."""
    return _first(connection, "WHERE id = ?", identity)


def newest_of(connection: sqlite3.Connection, key: str) -> Incident | None:
    """The newest incident of a key."""
    return _first(connection, "WHERE key = ? ORDER BY rowid DESC LIMIT 1", key)


def with_alert(connection: sqlite3.Connection, fingerprint: str) -> Incident | None:
    """The newest of the last incidents that has an alert."""
    rest, part = "ORDER BY rowid DESC LIMIT 2000", fingerprint.encode()
    incidents = aside_tables.read(connection, "incident", rest, (), _incident, part)
    return next((incident for incident in incidents if fingerprint in incident.alerts), None)


def unresolved(connection: sqlite3.Connection) -> list[Incident]:
    """The incidents that are not resolved, the newest first."""
    return _all(connection, "WHERE resolved IS NULL ORDER BY rowid DESC")


def between(connection: sqlite3.Connection, first: float, last: float, most: int) -> list[Incident]:
    """The incidents that were opened between two times, the newest first."""
    rest = "WHERE opened >= ? AND opened < ? ORDER BY opened DESC LIMIT ?"
    return _all(connection, rest, first, last, most)


def prune(connection: sqlite3.Connection, before: float) -> None:
    """Remove resolved incidents that were opened before a time."""
    connection.execute("DELETE FROM incidents WHERE resolved IS NOT NULL AND opened < ?", (before,))


def _first(connection: sqlite3.Connection, rest: str, *values: object) -> Incident | None:
    return next(iter(_all(connection, rest, *values)), None)


def _all(connection: sqlite3.Connection, rest: str, *values: object) -> list[Incident]:
    return aside_tables.read(connection, "incident", rest, values, _incident)
