"""The repairs of a hub: each change is one transaction, logged and counted.

In: changes of repairs. Out: repairs, and their metrics.
"""

from __future__ import annotations

import logging
import sqlite3
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any

from nodevitals.linux.host import Clock
from nodevitals_hub import families
from nodevitals_hub.checks.newest import Sample
from nodevitals_hub.records import Isolation
from nodevitals_hub.repair import repair_tables
from nodevitals_hub.repair.repair_records import (
    ACTIONS,
    BAD_STATES,
    OUTCOMES,
    RUNNING_STATES,
    Repair,
)
from nodevitals_hub.settings.repairs import RepairSettings
from nodevitals_hub.store.response_database import Database

log = logging.getLogger(__name__)


class RepairBook:
    """Repairs, as last written to the database."""

    def __init__(self, database: Database, clock: Clock) -> None:
        self._database, self._clock = database, clock
        self._outcomes: Counter[tuple[str, str]] = Counter()
        """Repairs by action and outcome, since the start."""
        self._bad: Counter[str] = Counter()
        """Open isolations with a repair that a person has to look at, by its action."""
        self.running: list[Repair] = []

    async def follow(self, isolations: Iterable[str], elapsed: float) -> list[Repair]:
        """Add `elapsed` seconds to the running repairs and return them; `isolations` are the open
        ones.
        """
        identities = sorted(isolations)

        def step(connection: sqlite3.Connection) -> tuple[list[Repair], list[Repair]]:
            running = repair_tables.running(connection)
            if elapsed and (running or repair_tables.starts(connection)):
                repair_tables.grow(connection, elapsed)
                running = repair_tables.running(connection)
            return running, repair_tables.of_isolations(connection, identities)

        self.running, known = await self._database.do(step)
        bad = {repair.isolation: _action(repair) for repair in known if repair.state in BAD_STATES}
        self._bad = Counter(bad.values())
        return self.running

    async def begin(
        self, repair: Repair, settings: RepairSettings, holds: Callable[[Isolation], bool]
    ) -> str:
        """Write a new repair if its isolation and the limits still allow it. Returns '' or why
        not.
        """
        now = self._clock.time()

        def step(connection: sqlite3.Connection) -> str:
            return repair_tables.admit(connection, repair, settings, holds, now)

        refusal = await self._database.do(step)
        if not refusal:
            self._note(repair)
        return refusal

    async def change(self, repair: Repair, act: Callable[..., Repair], *more: Any) -> Repair:
        """Change a repair by a function, and write it."""
        now = self._clock.time()

        def step(connection: sqlite3.Connection) -> tuple[Repair | None, Repair | None]:
            return repair_tables.change(
                connection, repair.id, lambda current: act(current, *more), now
            )

        before, after = await self._database.do(step)
        if before is None or after is None:
            return repair
        if after.state != before.state:
            self._note(after)
        elif after.text != before.text and after.text:
            log.warning("isolation %s: %s", after.isolation, after.line)
        return after

    async def known(self, isolations: Sequence[Isolation]) -> list[Repair]:
        """All repairs of these isolations; the oldest first."""
        names = [isolation.id for isolation in isolations]
        repairs: list[Repair] = await self._database.do(
            partial(repair_tables.of_isolations, identities=names)
        )
        return repairs

    async def prune(self) -> None:
        """Remove repairs that ended long ago."""
        now = self._clock.time()
        await self._database.do(partial(repair_tables.prune, now=now))

    def samples(self) -> Iterable[Sample]:
        """The samples for /metrics."""
        running = Counter(map(_action, self.running))
        for action in ACTIONS:
            yield families.REPAIRS_RUNNING, (action,), running[action]
            yield families.REPAIRS_FAILED, (action,), self._bad[action]
            for outcome in OUTCOMES:
                yield families.REPAIRS, (action, outcome), self._outcomes[action, outcome]

    def _note(self, after: Repair) -> None:
        self.running = [repair for repair in self.running if repair.id != after.id]
        if after.state in RUNNING_STATES:
            self.running.append(after)
        if after.state in OUTCOMES:
            self._outcomes[_action(after), after.state] += 1
        level = logging.WARNING if after.state in BAD_STATES else logging.INFO
        log.log(level, "isolation %s: %s: %s", after.isolation, after.node, after.line)


def _action(repair: Repair) -> str:
    """A value of the label `action`, of a closed list."""
    return repair.action if repair.action in ACTIONS else "none"
