"""Incidents: opened and resolved by alerts, acknowledged and judged by people.

In: alerts (incident_intake.py), people. Out: incidents in the database, times to
acknowledge and to repair. Escalation is Alertmanager's, by its routes.
"""

from __future__ import annotations

import logging
import secrets
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

from msgspec.structs import replace

from nodevitals.errors import Wording
from nodevitals_hub import families
from nodevitals_hub.checks.check_requests import RefusedError
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
"""Of a month."""
LINK_KEY, KEY_BYTES = "link key", 32

Found = TypeVar("Found")

log = logging.getLogger(__name__)


class Incidents:
    """All incidents of one hub."""

    def __init__(self, hub: Hub) -> None:
        self._hub = hub
        self.totals: Counter[tuple[str, str]] = Counter()
        """Since the start, by severity and what: opened, acknowledged, resolved, late, marked."""
        self.seconds: defaultdict[tuple[str, str], float] = defaultdict(float)
        """The same in seconds: acknowledge, repair."""
        self.current: Counter[tuple[str, str]] = Counter()
        """Unresolved ones by severity and state: open, acknowledged."""
        self._link_key = b""

    async def _do(self, work: Callable[[sqlite3.Connection], Found]) -> Found:
        return await self._hub.database.do(work)

    def may_be_any(self) -> bool:
        """Whether there may be incidents: something was stored once."""
        return self._hub.database.exists()

    def note(self, incident: Incident) -> None:
        """Log and count what a message did. The totals are those since the start."""
        if incident.resolved is not None:
            self.count_end(incident)
        elif len(incident.alerts) == 1 and incident.acknowledged is None:
            if not incident.drill:
                self.totals[incident.severity, "opened"] += 1
            log.info("incident %s: %s: opened", incident.id, incident.title)

    def count_end(self, incident: Incident) -> None:
        """Log and count the end of one."""
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
        """Count what is not resolved."""
        incidents = await self._do(tables.unresolved)
        self.current = Counter(
            (one.severity, "open" if one.acknowledged is None else "acknowledged")
            for one in incidents
            if not one.drill
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
        found = await self._do(
            lambda connection: tables.between(connection, first, last, MOST_COUNTED)
        )
        return summary(month, found, self._hub.settings.incidents), found[:MOST_LISTED]

    async def get(self, identity: str) -> Incident:
        """One incident. Raises RefusedError and StoreError."""
        found = await self._do(lambda connection: tables.get(connection, identity))
        if found is None:
            raise RefusedError("not_found", Wording("no such incident"))
        return found

    async def with_alert(self, fingerprint: str) -> Incident:
        """The newest incident that has an alert. Raises RefusedError and StoreError."""
        found = await self._do(lambda connection: tables.with_alert(connection, fingerprint))
        if found is None:
            raise RefusedError("not_found", Wording("no incident has that alert"))
        return found

    async def acknowledge(self, identity: str, name: str, by_link: bool = False) -> Incident:
        """Note who works on it; the first one counts. `by_link`: the name is what a person without
        a login wrote. Raises RefusedError and StoreError.
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

        found = await self._change(identity, change)
        how = ", with the link of a notification" if by_link else ""
        log.info("incident %s: acknowledged by %s%s", identity, name, how)
        if not found.drill and found.acknowledged is not None:
            seconds = found.acknowledged - found.opened
            self.totals[found.severity, "acknowledged"] += 1
            self.seconds[found.severity, "acknowledge"] += seconds
            target = self._hub.settings.incidents.targets.get(found.severity)
            if target and target.acknowledge is not None and seconds > target.acknowledge:
                self.totals[found.severity, "late acknowledge"] += 1
        return found

    async def mark(self, identity: str, false_alarm: bool, name: str, note: str = "") -> Incident:
        """Note whether it was a false alarm. Raises RefusedError and StoreError."""
        before: list[bool | None] = []

        def change(incident: Incident) -> Incident:
            before.append(incident.false_alarm)
            return replace(
                incident,
                false_alarm=false_alarm,
                marked_by=_line(name, 100),
                note=_line(note, 500) or incident.note,
            )

        found = await self._change(identity, change)
        if not found.drill and before != [false_alarm]:
            self.totals[found.severity, _marked(false_alarm)] += 1
        return found

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
        """Read, or make, the key that signs links."""

        def work(connection: sqlite3.Connection) -> bytes:
            found = aside_tables.fact(connection, LINK_KEY, _key)
            if found is None:
                found = secrets.token_bytes(KEY_BYTES)
                connection.execute("INSERT INTO facts VALUES (?, ?)", (LINK_KEY, found))
            return found

        self._link_key = await self._do(work)

    def worth(self, identity: str, fields: Mapping[str, str]) -> signed_links.Worth:
        """What the fields of a link are worth for an incident."""
        return signed_links.worth(self._link_key, identity, fields, time.time())

    def signed(self, text: str, identity: str) -> str:
        """The text of a notification, with the link to its incident."""
        return signed_links.signed(text, self._link_key, identity, time.time())

    def samples(self) -> Iterator[tuple[Any, tuple[str, ...], float]]:
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
