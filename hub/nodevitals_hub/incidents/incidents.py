"""Incidents: alerts open and resolve them, people acknowledge and mark them.

In: alerts (incident_intake.py), requests of people. Out: incidents in the database, times to
acknowledge and to repair. Alertmanager escalates, by its routes.
"""

from __future__ import annotations

import logging
import secrets
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, TypeVar

from msgspec.structs import replace

from nodevitals.errors import Wording
from nodevitals_hub import families
from nodevitals_hub.checks.check_requests import RefusedError
from nodevitals_hub.checks.newest import Sample
from nodevitals_hub.incidents import incident_tables as tables
from nodevitals_hub.incidents import signed_links
from nodevitals_hub.incidents.incident_summary import Summary, bounds, summary
from nodevitals_hub.records import Incident
from nodevitals_hub.store import aside_tables

if TYPE_CHECKING:
    import sqlite3

    from nodevitals_hub.context import Hub

MOST_LISTED = 1000
MOST_COUNTED = 20_000
"""Limit per month."""
LINK_KEY, KEY_BYTES = "link key", 32

Found = TypeVar("Found")

log = logging.getLogger(__name__)


class Incidents:
    """All incidents of one hub."""

    def __init__(self, hub: Hub) -> None:
        self._hub = hub
        self.totals: Counter[tuple[str, str]] = Counter()
        """Events since the start, by severity and event: opened, acknowledged, resolved, late …"""
        self.seconds: defaultdict[tuple[str, str], float] = defaultdict(float)
        """Seconds since the start, by severity and time: acknowledge, repair."""
        self.current: Counter[tuple[str, str]] = Counter()
        """Unresolved incidents by severity and state: open, acknowledged."""
        self._link_key = b""

    async def _do(self, work: Callable[[sqlite3.Connection], Found]) -> Found:
        return await self._hub.database.do(work)

    def may_be_any(self) -> bool:
        """Whether there may be incidents: something was stored once."""
        return self._hub.database.exists()

    def note(self, incident: Incident) -> None:
        """Log and count a change by a message."""
        if incident.resolved is not None:
            self.count_end(incident)
        elif len(incident.alerts) == 1 and incident.acknowledged is None:
            if not incident.drill:
                self.totals[incident.severity, "opened"] += 1
            log.info("incident %s: %s: opened", incident.id, incident.title)

    def count_end(self, incident: Incident) -> None:
        """Log and count the end of an incident."""
        log.info("incident %s: %s: resolved", incident.id, incident.title)
        if incident.drill or incident.resolved is None:
            return
        seconds = incident.resolved - incident.opened
        self.totals[incident.severity, "resolved"] += 1
        self.seconds[incident.severity, "repair"] += seconds
        target = self._hub.settings.incidents.targets.get(incident.severity)
        if target is not None and target.repair is not None and seconds > target.repair:
            self.totals[incident.severity, "late repair"] += 1

    async def count(self) -> None:
        """Count the unresolved incidents."""
        incidents = await self._do(tables.unresolved)
        self.current = Counter(
            (incident.severity, "open" if incident.acknowledged is None else "acknowledged")
            for incident in incidents
            if not incident.drill
        )

    async def listed(self) -> list[Incident]:
        """The unresolved ones, the newest first. Raises StoreError."""
        return await self._do(tables.unresolved)

    async def month(self, month: str) -> tuple[Summary, list[Incident]]:
        """The newest incidents of a month, and the figures of all. Raises RefusedError and
        StoreError.
        """
        try:
            first, last = bounds(month)
        except ValueError:
            raise RefusedError("invalid", Wording("month: write it as 2026-11")) from None
        incidents = await self._do(
            lambda connection: tables.between(connection, first, last, MOST_COUNTED)
        )
        return summary(month, incidents, self._hub.settings.incidents), incidents[:MOST_LISTED]

    async def get(self, identity: str) -> Incident:
        """One incident. Raises RefusedError and StoreError."""
        incident = await self._do(lambda connection: tables.get(connection, identity))
        if incident is None:
            raise RefusedError("not_found", Wording("no such incident"))
        return incident

    async def with_alert(self, fingerprint: str) -> Incident:
        """The newest incident that has an alert. Raises RefusedError and StoreError."""
        incident = await self._do(lambda connection: tables.with_alert(connection, fingerprint))
        if incident is None:
            raise RefusedError("not_found", Wording("no incident has that alert"))
        return incident

    async def acknowledge(self, identity: str, name: str, by_link: bool = False) -> Incident:
        """Record who works on it; the first name counts. `by_link`: a person without a login has
        entered the name. Raises RefusedError and StoreError.
        """
        name = _line(name, 100)
        if not name:
            raise RefusedError("invalid", Wording("name: write your name"))
        now = time.time()

        def change(incident: Incident) -> Incident:
            if incident.acknowledged is not None:
                text = Wording("{name} has acknowledged it", name=incident.acknowledged_by)
                raise RefusedError("conflict", text)
            if incident.resolved is not None:
                raise RefusedError("conflict", Wording("it is resolved"))
            return replace(incident, acknowledged=max(now, incident.opened), acknowledged_by=name)

        incident = await self._change(identity, change)
        how = ", with the link of a notification" if by_link else ""
        log.info("incident %s: acknowledged by %s%s", identity, name, how)
        if not incident.drill and incident.acknowledged is not None:
            seconds = incident.acknowledged - incident.opened
            self.totals[incident.severity, "acknowledged"] += 1
            self.seconds[incident.severity, "acknowledge"] += seconds
            target = self._hub.settings.incidents.targets.get(incident.severity)
            if target and target.acknowledge is not None and seconds > target.acknowledge:
                self.totals[incident.severity, "late acknowledge"] += 1
        return incident

    async def mark(self, identity: str, false_alarm: bool, name: str, note: str = "") -> Incident:
        """Record whether it was a false alarm. Raises RefusedError and StoreError."""
        before: list[bool | None] = []

        def change(incident: Incident) -> Incident:
            before.append(incident.false_alarm)
            return replace(
                incident,
                false_alarm=false_alarm,
                marked_by=_line(name, 100),
                note=_line(note, 500) or incident.note,
            )

        incident = await self._change(identity, change)
        if not incident.drill and before != [false_alarm]:
            self.totals[incident.severity, _marked(false_alarm)] += 1
        return incident

    async def _change(self, identity: str, change: Callable[[Incident], Incident]) -> Incident:
        def work(connection: sqlite3.Connection) -> Incident:
            incident = tables.get(connection, identity)
            if incident is None:
                raise RefusedError("not_found", Wording("no such incident"))
            changed = change(incident)
            tables.write(connection, changed)
            return changed

        return await self._do(work)

    async def read_link_key(self) -> None:
        """Read the key that signs links; make one where there is none."""

        def work(connection: sqlite3.Connection) -> bytes:
            key = aside_tables.fact(connection, LINK_KEY, _key)
            if key is None:
                key = secrets.token_bytes(KEY_BYTES)
                connection.execute("INSERT INTO facts VALUES (?, ?)", (LINK_KEY, key))
            return key

        self._link_key = await self._do(work)

    def worth(self, identity: str, fields: Mapping[str, str]) -> signed_links.Worth:
        """Whether the fields of a link are valid for an incident."""
        return signed_links.worth(self._link_key, identity, fields, time.time())

    def signed(self, text: str, identity: str) -> str:
        """The text of a notification, with the link to its incident."""
        return signed_links.signed(text, self._link_key, identity, time.time())

    def samples(self) -> Iterator[Sample]:
        """What /metrics shows; nothing before the first message."""
        if not self._link_key:
            return
        for severity in self._hub.settings.incidents.severities:
            for state in ("open", "acknowledged"):
                yield families.INCIDENTS, (severity, state), self.current[severity, state]
            own = (severity,)
            yield families.INCIDENTS_OPENED, own, self.totals[severity, "opened"]
            yield families.INCIDENTS_ACKNOWLEDGED, own, self.totals[severity, "acknowledged"]
            yield families.INCIDENTS_RESOLVED, own, self.totals[severity, "resolved"]
            yield families.ACKNOWLEDGE_SECONDS, own, self.seconds[severity, "acknowledge"]
            yield families.REPAIR_SECONDS, own, self.seconds[severity, "repair"]
            for false_alarm in (True, False):
                label = str(false_alarm).lower()
                number = self.totals[severity, _marked(false_alarm)]
                yield families.INCIDENTS_MARKED, (severity, label), number
            for target in ("acknowledge", "repair"):
                late = self.totals[severity, f"late {target}"]
                yield families.TARGETS_MISSED, (severity, target), late


def _marked(false_alarm: bool) -> str:
    return "false alarm" if false_alarm else "no false alarm"


def _key(value: bytes) -> bytes:
    if not isinstance(value, bytes) or len(value) != KEY_BYTES:
        raise ValueError("not a key")
    return value


def _line(text: str, most: int) -> str:
    return "".join(c for c in " ".join(text.split()) if c.isprintable())[:most]
