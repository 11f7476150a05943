"""The incident that a notification links to, and its link when the notification is sent.

In: alerts, deliveries, incidents in the database. Out: an address that anyone may read; deliveries
whose texts have links, for a channel only.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from msgspec.structs import replace

from nodevitals_hub.incidents import incident_intake, incident_log, incident_tables, signed_links
from nodevitals_hub.incidents.incidents import Incidents
from nodevitals_hub.records import Alert, Delivery
from nodevitals_hub.store import inbox_tables
from nodevitals_hub.store.response_database import Database
from nodevitals_hub.triggers.alert_plan import node_of

if TYPE_CHECKING:
    import sqlite3

    from nodevitals_hub.context import Hub

WAIT_SECONDS = 2.0
"""Longest wait for the incident of a message, whose reader is another one."""
LOOK_SECONDS = 0.05


class Place(NamedTuple):
    """Where the incident of a notification is."""

    address: str = ""
    """Behind /incidents/; '' where it has none."""
    key: str = ""
    """Of the incident; '' where nothing is to be acknowledged."""


def place_of(hub: Hub, alerts: Sequence[Alert]) -> Place:
    """Where the incident of some alerts is: of the first that fires, else of the first."""
    opening = [one for one in alerts if incident_log.opens(one, hub.settings.incidents)]
    if not opening:
        return Place()
    alert = next((one for one in opening if one.status == "firing"), opening[0])
    address = signed_links.unsigned(alert.fingerprint)
    if alert.status != "firing":
        return Place(address)
    members = {member.name: member for member in hub.checks.members()}
    return Place(address, incident_log.key_of(alert, node_of(alert.labels, members) or ""))


async def linked(
    database: Database, incidents: Incidents, deliveries: Sequence[Delivery]
) -> list[Delivery]:
    """The deliveries as they are sent. An incident that is acknowledged or resolved, or is not
    there in time, leaves the address of its alert. Raises StoreError.
    """
    keys = {one.incident_key for one in deliveries if one.incident_key}
    if not keys:
        return list(deliveries)
    newest = max(one.created for one in deliveries)

    def read(connection: sqlite3.Connection) -> tuple[dict[str, str], bool]:
        found = {key: incident_tables.newest_of(connection, key) for key in keys}
        is_behind = inbox_tables.waits_since(connection, incident_intake.READER, newest)
        return {
            key: one.id
            for key, one in found.items()
            if one is not None and one.resolved is None and one.acknowledged is None
        }, is_behind

    end = time.monotonic() + WAIT_SECONDS
    while True:
        found, is_behind = await database.do(read)
        if len(found) == len(keys) or not is_behind or time.monotonic() >= end:
            break
        await asyncio.sleep(LOOK_SECONDS)
    sign = incidents.signed
    return [
        replace(one, text=sign(one.text, found[one.incident_key]))
        if one.incident_key in found
        else one
        for one in deliveries
    ]
