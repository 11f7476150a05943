"""Notifies the owners of the jobs that a fault concerns.

In: the inbox (receiver.py), the jobs on the nodes from Prometheus. Out: deliveries. While
Prometheus is down, only the notifications to owners wait; after LONGEST_SECONDS a message notifies
only the owners that its own alerts name.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from nodevitals.checks.deadlines import within
from nodevitals_hub.alerting import setting_aside
from nodevitals_hub.alerting.prometheus_queries import AskingError, Sample
from nodevitals_hub.alerting.receiver import Receiver
from nodevitals_hub.alerting.servers import Servers
from nodevitals_hub.incidents import incident_intake, incident_log, incident_tables
from nodevitals_hub.notify.notify import Notifier
from nodevitals_hub.notify.owner_deliveries import made_of
from nodevitals_hub.notify.owners import notices, owner_query
from nodevitals_hub.records import Alert, Received
from nodevitals_hub.store import delivery_tables, inbox_tables
from nodevitals_hub.store.check_store import StoreError
from nodevitals_hub.triggers.alert_plan import node_of

if TYPE_CHECKING:
    import sqlite3

    from nodevitals_hub.context import Hub

READER = "owners"
LOOK_SECONDS = 5.0
RETRY_SECONDS = 10.0
LONGEST_SECONDS = 900.0
"""Longest wait of a message for Prometheus."""
SAME_SECONDS = 900.0
"""A job on a node is not named again within this time, with or without an incident."""

log = logging.getLogger(__name__)


class Owners:
    """Reads the inbox for the owners of jobs."""

    def __init__(self, hub: Hub, servers: Servers, receiver: Receiver, notifier: Notifier) -> None:
        self._hub, self._servers, self._notifier = hub, servers, notifier
        self._arrived = receiver.arrived[READER]
        self._problem = ""

    async def run(self) -> None:
        """Read until cancelled; without the setting, this only removes messages."""
        if not self._hub.database.exists():
            await self._arrived.wait()
        while True:
            self._arrived.clear()
            with suppress(StoreError):  # logged by the database
                while await setting_aside.read(self._hub.database, READER, self._read_one):
                    pass
            try:
                await within(self._arrived.wait(), LOOK_SECONDS)
            except TimeoutError:
                continue

    async def _read_one(self) -> bool:
        """Handle the oldest message; False where none is ready. The incidents of a message must be
        stored first: a job is named once per incident.
        """
        database = self._hub.database

        def oldest(connection: sqlite3.Connection) -> Received | None:
            received = inbox_tables.oldest(connection, READER)
            first = inbox_tables.oldest(connection, incident_intake.READER)
            waits = received and first and first.number < received.number
            return None if waits else received

        received = await database.do(oldest)
        if received is None:
            return False
        alerts = received.message.alerts
        samples = await self._samples(alerts, received.time)
        if samples is None:
            await asyncio.sleep(RETRY_SECONDS)
            return True
        settings = self._hub.settings

        def store(connection: sqlite3.Connection) -> int:
            owner_notices = notices(alerts, samples, self._incident_of(connection))
            jobs = [job for notice in owner_notices for job in notice.jobs]
            places = [job.place for job in jobs]
            recent = inbox_tables.known_within(connection, places, received.time, SAME_SECONDS)
            again = {job.key for job in jobs if job.place in recent}
            made = made_of(
                owner_notices,
                inbox_tables.known(connection, [job.key for job in jobs]) | again,
                settings.notify,
                settings.cluster,
                self._notifier.room_of,
                received.time,
            )
            delivery_tables.write(connection, made.deliveries)
            named = [job.place for job in jobs if job.key in made.keys]
            inbox_tables.remember(connection, [*made.keys, *again, *named], received.time)
            inbox_tables.remove(connection, received.number)
            return len(made.deliveries)

        if await database.do(store):
            self._notifier.wake()
        return True

    def _incident_of(self, connection: sqlite3.Connection) -> Callable[[Alert], str]:
        members = self._hub.members.by_name

        def incident(alert: Alert) -> str:
            key = incident_log.key_of(alert, node_of(alert.labels, members) or "")
            newest = incident_tables.newest_of(connection, key)
            return newest.id if newest is not None and newest.resolved is None else ""

        return incident

    async def _samples(self, alerts: Sequence[Alert], since: float) -> list[Sample] | None:
        """The jobs that alerts concern; None where the query must be repeated later."""
        query, server = owner_query(alerts), self._servers.prometheus
        if not query or server is None:
            return []
        try:
            samples = await server.query(query)
        except AskingError as error:
            if str(error) != self._problem:
                log.warning("owners: %s; tried again every %g s", error, RETRY_SECONDS)
            self._problem = str(error)
            return None if 0 <= time.time() - since < LONGEST_SECONDS else []
        self._problem = ""
        return samples
