"""The incident that a notification links to, and its signed link when the notification is sent.

In: alerts, deliveries, incidents in the database. Out: an address without a secret; deliveries with
signed links, which only the channel gets.
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
"""Longest wait for the incident of a message, which another reader stores."""
LOOK_SECONDS = 0.05


class Place(NamedTuple):
    """The address and the key of a notification's incident."""

    address: str = ""
    """The path after /incidents/; '' without an incident."""
    key: str = ""
    """The incident's key; '' where nothing can be acknowledged."""


def place_of(hub: Hub, alerts: Sequence[Alert]) -> Place:
    """The place of the incident of the first firing alert, else of the first alert."""
    opening = [alert for alert in alerts if incident_log.opens(alert, hub.settings.incidents)]
    if not opening:
        return Place()
    alert = next((alert for alert in opening if alert.status == "firing"), opening[0])
    address = signed_links.unsigned(alert.fingerprint)
    if alert.status != "firing":
        return Place(address)
    members = hub.members.by_name
    return Place(address, incident_log.key_of(alert, node_of(alert.labels, members) or ""))


async def linked(
    database: Database, incidents: Incidents, deliveries: Sequence[Delivery]
) -> list[Delivery]:
    """The deliveries with signed links. If the incident is acknowledged, resolved or not stored in
    time, the address of its alert stays. Raises StoreError.
    """
    keys = {delivery.incident_key for delivery in deliveries if delivery.incident_key}
    if not keys:
        return list(deliveries)
    newest = max(delivery.created for delivery in deliveries)

    def read(connection: sqlite3.Connection) -> tuple[dict[str, str], bool]:
        newest_of_keys = {key: incident_tables.newest_of(connection, key) for key in keys}
        is_behind = inbox_tables.waits_since(connection, incident_intake.READER, newest)
        return {
            key: incident.id
            for key, incident in newest_of_keys.items()
            if incident is not None and incident.resolved is None and incident.acknowledged is None
        }, is_behind

    end = time.monotonic() + WAIT_SECONDS
    while True:
        open_ids, is_behind = await database.do(read)
        if len(open_ids) == len(keys) or not is_behind or time.monotonic() >= end:
            break
        await asyncio.sleep(LOOK_SECONDS)
    sign = incidents.signed
    return [
        replace(delivery, text=sign(delivery.text, open_ids[delivery.incident_key]))
        if delivery.incident_key in open_ids
        else delivery
        for delivery in deliveries
    ]
