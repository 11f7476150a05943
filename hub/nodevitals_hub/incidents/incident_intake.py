"""Opens and resolves incidents from alerts.

In: the inbox (receiver.py), and Alertmanager's current alerts, because it does not send the end of
a silenced alert. Out: incidents in the database, in the transaction that removes the message.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, cast

from nodevitals.checks.deadlines import within
from nodevitals_hub.alerting import setting_aside
from nodevitals_hub.alerting.prometheus_queries import AskingError
from nodevitals_hub.alerting.receiver import Receiver
from nodevitals_hub.alerting.servers import Servers
from nodevitals_hub.checks.coordinator import new_identity
from nodevitals_hub.incidents import incident_log
from nodevitals_hub.incidents import incident_tables as tables
from nodevitals_hub.incidents.incidents import Incidents
from nodevitals_hub.records import Incident, Received
from nodevitals_hub.settings.response import Severity
from nodevitals_hub.store import aside_tables, inbox_tables
from nodevitals_hub.store.check_store import StoreError
from nodevitals_hub.triggers.alert_plan import node_of

if TYPE_CHECKING:
    import sqlite3

    from nodevitals_hub.context import Hub

READER = "incidents"
LOOK_SECONDS = 5.0
ASK_SECONDS = 60.0
VANISHED_SECONDS = 300.0
"""As long as Alertmanager keeps an alert that Prometheus does not send again (resolve_timeout)."""

log = logging.getLogger(__name__)


class Intake:
    """Reads the inbox for the incidents of one hub."""

    def __init__(
        self, hub: Hub, servers: Servers, receiver: Receiver, incidents: Incidents
    ) -> None:
        self._hub, self._database = hub, hub.database
        self._servers, self._incidents = servers, incidents
        self._arrived = receiver.arrived[READER]
        self._asked = 0.0
        self._missed: dict[str, float] = {}
        """Alerts that Alertmanager does not have, with the time since then (monotonic clock)."""

    async def run(self) -> None:
        """Read the inbox, and query Alertmanager; wait for the first message before."""
        if not self._incidents.may_be_any():
            await self._arrived.wait()
        await self._incidents.read_link_key()
        self._missed.clear()
        while True:
            self._arrived.clear()
            with suppress(StoreError):  # logged by the database
                await self._round()
            try:
                await within(self._arrived.wait(), LOOK_SECONDS)
            except TimeoutError:
                continue

    async def _round(self) -> None:
        while await setting_aside.read(self._database, READER, self._read_one):
            pass
        if time.monotonic() - self._asked >= ASK_SECONDS:
            self._asked = time.monotonic()
            await self._ask_alertmanager()
            await self._prune()
        await self._incidents.count()

    async def _prune(self) -> None:
        before = time.time() - self._hub.settings.incidents.keep

        def work(connection: sqlite3.Connection) -> None:
            tables.prune(connection, before)
            aside_tables.prune(connection, time.time())

        await self._database.do(work)

    async def _read_one(self) -> bool:
        """Handle the alerts of the oldest message; False where none waits."""

        def work(connection: sqlite3.Connection) -> Sequence[Incident] | None:
            received = inbox_tables.oldest(connection, READER)
            if received is None:
                return None
            changed = self._taken(connection, received)
            inbox_tables.remove(connection, received.number)
            return changed

        changed = await self._database.do(work)
        for incident in changed or ():
            self._incidents.note(incident)
        return changed is not None

    def _taken(self, connection: sqlite3.Connection, received: Received) -> list[Incident]:
        """Store and return the incidents that a message changes. Runs in the database's thread."""
        settings = self._hub.settings
        members = self._hub.members.by_name
        newest: dict[str, Incident | None] = {}
        changed: dict[str, Incident] = {}
        again = set(received.message.again)
        for alert in received.message.alerts:
            if not incident_log.opens(alert, settings.incidents):
                continue
            node = node_of(alert.labels, members) or ""
            key = incident_log.key_of(alert, node)
            if key not in newest:
                newest[key] = tables.newest_of(connection, key)
            pool = members[node].labels.get("pool", "") if node else ""
            new = Incident(
                id=new_identity(),
                key=key,
                title=incident_log.title_of(alert),
                severity=cast("Severity", alert.labels["severity"]),
                cluster=alert.labels.get("cluster") or settings.cluster,
                node=node or alert.labels.get("instance", ""),
                pool=alert.labels.get("pool") or pool,
                opened=received.time,
                drill=alert.is_drill,
            )
            incident = incident_log.taken(
                *(alert, newest[key], new, settings.incidents, received.time),
                again=alert.fingerprint in again,
            )
            if incident is not None:
                newest[key] = changed[incident.id] = incident
        for incident in changed.values():
            tables.write(connection, incident)
        return list(changed.values())

    async def _ask_alertmanager(self) -> None:
        """Resolve the alerts that Alertmanager no longer has."""
        server = self._servers.alertmanager
        if server is None:
            return
        try:
            active = {alert.fingerprint for alert in await server.active_alerts()}
        except AskingError as error:
            log.warning("incidents: %s; those that were silenced stay open", error)
            self._missed.clear()
            return
        now, moment = time.time(), time.monotonic()
        incidents: list[Incident] = await self._database.do(tables.unresolved)
        firing = {
            name
            for incident in incidents
            for name, alert in incident.alerts.items()
            if alert.status == "firing"
        }
        missed = {name: self._missed.get(name, moment) for name in firing - active}
        self._missed = missed
        since = {name: now - (moment - first) for name, first in missed.items()}
        for incident in incidents:
            changed = incident_log.vanished(incident, active, since, now, VANISHED_SECONDS)
            if changed is not incident:
                await self._store_if_same(incident, changed)

    async def _store_if_same(self, before: Incident, after: Incident) -> None:
        """Store a change, unless a message or a person changed the incident meanwhile."""

        def work(connection: sqlite3.Connection) -> bool:
            if tables.get(connection, before.id) != before:
                return False
            tables.write(connection, after)
            return True

        if await self._database.do(work) and after.resolved is not None:
            self._incidents.count_end(after)
