"""What agents say of the nodes of a collective, before and while it runs.

In: names of nodes. Out: their rails, which of them jobs use, and whose
agents do not answer. Where the hub has no agents, or a
node is not on its lists, nothing is known of it.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable

from nodevitals.checks.isolation.rails import rails_of
from nodevitals.checks.model import CheckRequest
from nodevitals.checks.verdicts.findings import some
from nodevitals_hub.checks.members import Members
from nodevitals_hub.launch.node_checks import Facts, Nodes

SETTLE_SECONDS = 120.0
"""What agents expose is as old as the intervals of their probes: processes of a collective that has
just ended are there for so long (NPUs: 60 s and a run of 30 s).
"""
SETTLE_STEP_SECONDS = 5.0
EVERY_SECONDS = 15.0
READING_SHARE = 0.2
"""Share of the time in which the agents are read."""


class NodeWatch:
    """The agents of the nodes of collectives."""

    def __init__(self, nodes: Nodes | None, members: Members) -> None:
        self._nodes, self._members = nodes, members

    async def rails(self, request: CheckRequest) -> tuple[str, ...]:
        """The devices of a request that are used on all of its nodes."""
        facts = await self._facts(request.nodes, fresh=False)
        return rails_of(request.test, [own.rdma_devices for own in facts.values()])

    async def in_use(self, nodes: Iterable[str]) -> str:
        """Which nodes jobs use, for people; '' for none."""
        deadline = time.monotonic() + SETTLE_SECONDS
        while nodes := await self._with_processes(nodes, 0):
            if time.monotonic() >= deadline:
                return _text(nodes)
            await asyncio.sleep(min(SETTLE_STEP_SECONDS, SETTLE_SECONDS))
        return ""

    async def silent(self, nodes: Iterable[str]) -> list[str]:
        """The nodes whose agents do not answer."""
        facts = await self._facts(nodes)
        return sorted(name for name, own in facts.items() if own.problem)

    async def taken(self, nodes: Iterable[str], ranks: int) -> str:
        """Wait until a node of a collective has more processes than its ranks, and return the text
        for people.
        """
        while True:
            clock = time.monotonic()
            found = await self._with_processes(nodes, ranks)
            if found:
                return _text(found)
            reading = time.monotonic() - clock
            await asyncio.sleep(max(EVERY_SECONDS, reading / READING_SHARE))

    async def _with_processes(self, nodes: Iterable[str], more_than: int) -> list[str]:
        facts = await self._facts(nodes)
        return sorted(name for name, own in facts.items() if (own.processes or 0) > more_than)

    async def _facts(self, names: Iterable[str], fresh: bool = True) -> dict[str, Facts]:
        if self._nodes is None:
            return {}
        known = self._members.by_name
        listed = [known[name] for name in names if name in known]
        return await self._nodes.facts(listed, fresh)


def _text(nodes: list[str]) -> str:
    return f"in use by jobs: {some(nodes)}"
