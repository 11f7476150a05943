"""The isolations of a hub: each change is one transaction, logged and counted.

In: answers of Prometheus, results of the scheduler, requests of persons. Out: isolations.
"""

from __future__ import annotations

import logging
import sqlite3
from collections import Counter
from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING

from nodevitals.checks.model import Requester
from nodevitals.errors import Wording
from nodevitals.linux.host import Clock
from nodevitals_hub.checks.check_requests import Member, RefusedError
from nodevitals_hub.checks.coordinator import new_identity
from nodevitals_hub.isolation import isolation_acts, isolation_tables
from nodevitals_hub.isolation.decisions import Decisions, History, decide
from nodevitals_hub.isolation.faults import Seen
from nodevitals_hub.isolation.ledger import Ledger
from nodevitals_hub.records import OPEN_STATES, Isolation
from nodevitals_hub.settings.response import OutOfServiceSettings
from nodevitals_hub.store.check_store import StoreError

if TYPE_CHECKING:
    from nodevitals_hub.context import Hub

OUTCOMES = ("isolated", "kept", "refused", "returned", "canceled", "ended")
RECENT_SECONDS = 86400.0

log = logging.getLogger(__name__)
Change = Callable[[Isolation], Isolation]


class Book:
    """The stored isolations and the ledger."""

    def __init__(self, hub: Hub, clock: Clock) -> None:
        self._hub, self._clock = hub, clock
        self.outcomes: Counter[tuple[str, bool]] = Counter()
        """Decisions by outcome, and whether in a dry run, since the start."""
        self.open: dict[str, Isolation] = {}
        """The open isolations by id, as they were written last."""
        self.ledger = Ledger()

    async def followed(self) -> list[Isolation]:
        """The open isolations, and the canceled ones whose faults have not ended."""

        def read(connection: sqlite3.Connection) -> tuple[list[Isolation], Ledger]:
            return isolation_tables.followed(connection), isolation_tables.ledger(connection)

        isolations, self.ledger = await self._hub.database.do(read)
        self.open = {
            isolation.id: isolation for isolation in isolations if isolation.state in OPEN_STATES
        }
        return isolations

    async def decide(
        self, seen: Seen, nodes: Mapping[str, Member], settings: OutOfServiceSettings
    ) -> None:
        """Decide by an answer of Prometheus, and write the changes."""
        now = self._clock.time()

        def step(connection: sqlite3.Connection) -> tuple[list[Isolation], Decisions]:
            isolations = isolation_tables.followed(connection)
            ledger = isolation_tables.ledger(connection)
            history = History(ledger, new_identity)
            decisions = decide(isolations, seen, nodes, settings, now, history)
            isolation_tables.put(connection, decisions.isolations)
            if decisions.ledger != ledger:
                isolation_tables.put_ledger(connection, decisions.ledger)
            return isolations, decisions

        isolations, decisions = await self._hub.database.do(step)
        before = {isolation.id: isolation for isolation in isolations}
        was_open = self.ledger.breaker.open
        self.ledger = decisions.ledger
        for after in decisions.isolations:
            self._note(before.get(after.id), after)
        breaker = self.ledger.breaker
        if breaker.open != was_open:
            text = f"open: {breaker.reason}" if breaker.open else "closed"
            log.warning("isolations: breaker %s", text)

    async def change(self, identity: str, act: Change) -> Isolation | None:
        """Change one isolation by a function, which may raise RefusedError."""
        now = self._clock.time()

        def step(connection: sqlite3.Connection) -> tuple[object, ...]:
            before, after = isolation_tables.change(connection, identity, act)
            ledger = isolation_tables.ledger(connection)
            remembered = ledger
            if before is not None and after is not None:
                if after.approved_by and not before.approved_by:
                    remembered = remembered.with_act(after, now)
                if after.state == "returned" != before.state:
                    remembered = remembered.with_return(after.node, now)
            if remembered != ledger:
                isolation_tables.put_ledger(connection, remembered)
            return before, after, remembered

        before, after, self.ledger = await self._hub.database.do(step)  # type: ignore[assignment]
        if after is not None and after != before:
            self._note(before, after)  # type: ignore[arg-type]
        return after  # type: ignore[return-value]

    async def approve(self, identity: str, requester: Requester) -> Isolation:
        """Take a node out of service although it was refused. Raises RefusedError."""
        return await self._asked(identity, requester, isolation_acts.approved)

    async def give_back(self, identity: str, requester: Requester) -> Isolation:
        """Return a node, or cancel what was not done yet. Raises RefusedError."""
        return await self._asked(identity, requester, isolation_acts.given_back)

    async def listed(self, limit: int) -> tuple[list[Isolation], list[Isolation]]:
        """The open ones, and the newest that have ended. Raises RefusedError."""

        def read(connection: sqlite3.Connection) -> tuple[list[Isolation], list[Isolation]]:
            newest = isolation_tables.newest(connection, limit)
            return isolation_tables.followed(connection), newest

        try:
            followed, newest = await self._hub.database.do(read)
        except StoreError as error:
            raise RefusedError("unavailable", str(error)) from None
        return [isolation for isolation in followed if isolation.state in OPEN_STATES], newest

    async def get(self, identity: str) -> Isolation | None:
        """One isolation."""
        return await self._hub.database.do(partial(isolation_tables.get, identity=identity))

    async def recent(self) -> list[str]:
        """Nodes with an isolation of the last day that does not, or no longer, take them out."""
        since = self._clock.time() - RECENT_SECONDS
        isolations = await self._hub.database.do(partial(isolation_tables.recent, since=since))
        return sorted({isolation.node for isolation in isolations if not isolation.dry_run})

    async def prune(self) -> None:
        """Remove isolations that ended long ago."""
        now = self._clock.time()
        await self._hub.database.do(partial(isolation_tables.prune, now=now))

    async def _asked(
        self,
        identity: str,
        requester: Requester,
        act: Callable[[Isolation, str, float], Isolation],
    ) -> Isolation:
        if requester.role != "act":
            raise RefusedError("forbidden", "this needs the role act")
        if self._hub.settings.out_of_service is None:
            text = Wording("the hub's configuration has no section out_of_service")
            raise RefusedError("not_found", text)
        name, now = requester.name or requester.trigger, self._clock.time()
        try:
            after = await self.change(identity, lambda isolation: act(isolation, name, now))
        except StoreError as error:
            raise RefusedError("unavailable", str(error)) from None
        if after is None:
            raise RefusedError("not_found", Wording("no isolation {name}", name=identity[:60]))
        return after

    def _note(self, before: Isolation | None, after: Isolation) -> None:
        self.open.pop(after.id, None)
        if after.state in OPEN_STATES:
            self.open[after.id] = after
        entered = before is None or before.state != after.state
        if entered and after.state in OUTCOMES and not (after.state == "isolated" and after.acted):
            self.outcomes[after.state, after.dry_run] += 1
        if before is None or (before.state, before.reason) != (after.state, after.reason):
            dry = "dry run: " if after.dry_run else ""
            log.info(
                "isolation %s: %s%s: %s: %s", after.id, dry, after.node, after.state, after.reason
            )
