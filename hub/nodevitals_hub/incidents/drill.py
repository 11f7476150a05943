"""Drills: a person raises a fault in alerts only, to test the delivery of its notifications.

In: requests of role act. Out: the family nodevitals_hub_drill, from which rules/drill.yaml makes an
alert with the label drill="true". A drill ends by itself. Nothing acts on it: nodevitals:fault and
nodevitals:fault_confirmed have no drills.
"""

from __future__ import annotations

import asyncio
import logging
import sqlite3
import time
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Annotated, Any, Literal

import msgspec
from litestar import Request, delete, get, post
from litestar.params import FromPath, JSONBody
from msgspec.structs import replace

from nodevitals.checks.model import NodeName
from nodevitals_hub import families
from nodevitals_hub.checks.check_requests import RefusedError
from nodevitals_hub.checks.coordinator import new_identity
from nodevitals_hub.checks.newest import Sample
from nodevitals_hub.records import Drill
from nodevitals_hub.settings.response import Severity
from nodevitals_hub.store import aside_tables
from nodevitals_hub.web.access import needs
from nodevitals_hub.web.api import requester_of

if TYPE_CHECKING:
    from nodevitals_hub.context import Hub

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


PATH = "/api/v1/drills"
KEEP = 200
SHORTEST_SECONDS = 60.0
LOOK_SECONDS = 5.0
Component = Literal["accelerator", "agent", "fabric", "mount", "network", "node", "rdma"]

log = logging.getLogger(__name__)


class DrillWanted(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A request for a drill."""

    node: NodeName
    """Name of a node on the hub's lists."""
    fault: Annotated[str, msgspec.Meta(pattern=r"^[a-z][a-z0-9_]{0,63}\Z")]
    """The fault that is rehearsed, such as accelerator_lost."""
    severity: Severity = "critical"
    component: Component = "node"
    seconds: Annotated[float, msgspec.Meta(ge=SHORTEST_SECONDS)] = 600.0
    """How long; until Alertmanager's routes have notified of it."""


class Drills:
    """All drills of one hub."""

    def __init__(self, hub: Hub) -> None:
        self._hub = hub
        self._newest: list[Drill] = []
        self._ends: dict[str, float] = {}
        """End of each drill by the monotonic clock: setting the wall clock makes none longer."""
        self._lock = asyncio.Lock()

    async def run(self) -> None:
        """Load the drills that have not ended, if the database exists."""
        if self._hub.database.exists():
            await self.load()

    async def load(self) -> None:
        """Read the stored drills: a drill continues after a restart, and ends at its time. A drill
        whose begin is in the future, because the clock was set back, has ended.
        """
        self._newest = await self._hub.database.do(lambda connection: newest(connection, KEEP))
        now, moment = time.time(), time.monotonic()
        self._ends = {
            drill.id: moment + drill.until - max(now, drill.created)
            for drill in self._newest
            if drill.created <= now + SHORTEST_SECONDS
        }

    def all(self) -> Sequence[Drill]:
        """The drills, the newest first."""
        return self._newest

    def active(self) -> list[Drill]:
        """The drills that have not ended."""
        moment = time.monotonic()
        return [
            drill
            for drill in self._newest
            if drill.ended is None and moment < self._ends.get(drill.id, moment)
        ]

    async def begin(self, wanted: DrillWanted, name: str) -> Drill:
        """Begin a drill. Raises RefusedError and StoreError."""
        settings = self._hub.settings.drill
        if not settings.enabled:
            text = "drills are off: set drill.enabled in the hub's configuration"
            raise RefusedError("forbidden", text)
        if wanted.node not in {member.name for member in self._hub.checks.members()}:
            raise RefusedError("not_found", f"{wanted.node} is not on the lists of nodes")
        if wanted.seconds > settings.longest:
            raise RefusedError("invalid", f"seconds: at most {settings.longest:g} (drill.longest)")
        async with self._lock:
            now = time.time()
            if len(self.active()) >= settings.at_a_time:
                raise RefusedError("conflict", "another drill lasts: end it first")
            drill = Drill(
                id=new_identity(),
                node=wanted.node,
                fault=wanted.fault,
                severity=wanted.severity,
                component=wanted.component,
                created=now,
                until=now + wanted.seconds,
                by=name,
            )
            self._ends[drill.id] = time.monotonic() + wanted.seconds
            await self._store(drill)
        log.warning(
            "drill %s: %s on %s for %g s, by %s",
            *(drill.id, drill.fault, drill.node, wanted.seconds, name or "a client without a name"),
        )
        return drill

    async def end(self, identity: str, name: str) -> Drill:
        """End a drill now. Raises RefusedError and StoreError."""
        async with self._lock:
            now = time.time()
            active = next((drill for drill in self.active() if drill.id == identity), None)
            if active is None:
                raise RefusedError("not_found", "no such drill lasts")
            ended = replace(active, ended=now)
            await self._store(ended)
        log.warning("drill %s: ended by %s", identity, name or "a client without a name")
        return ended

    async def _store(self, drill: Drill) -> None:
        def work(connection: sqlite3.Connection) -> list[Drill]:
            write(connection, drill)
            prune(connection, KEEP)
            return newest(connection, KEEP)

        self._newest = await self._hub.database.do(work)

    def samples(self) -> Iterator[Sample]:
        """What /metrics shows."""
        for drill in self.active():
            yield families.DRILL, (drill.node, drill.fault, drill.component, drill.severity), 1.0


def handlers(drills: Drills) -> list[Any]:
    """The REST API."""

    @get(PATH)
    async def list_drills() -> list[Drill]:
        """The drills, the newest first."""
        return list(drills.all())

    @post(PATH, guards=[needs("act")])
    async def begin(data: JSONBody[DrillWanted], request: Request[Any, Any, Any]) -> Drill:
        """Raise a fault in alerts only, to rehearse the way of its notifications."""
        return await drills.begin(data, requester_of(request).name)

    @delete(f"{PATH}/{{identity:str}}", status_code=200, guards=[needs("act")])
    async def end(identity: FromPath[str], request: Request[Any, Any, Any]) -> Drill:
        """End a drill now."""
        return await drills.end(identity, requester_of(request).name)

    return [list_drills, begin, end]
