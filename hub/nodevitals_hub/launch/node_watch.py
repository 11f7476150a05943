"""Reads the agents of a collective's nodes, before and while it runs.

In: names of nodes. Out: their rails, the nodes that jobs use, the nodes whose agents do not answer.
There are no facts for a hub without agents, or for a node that is not on its lists.
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
"""Exposed data is as old as the interval of its probe: an agent may show the processes of a
collective for this time after its end (NPUs: 60 s and a run of 30 s).
"""
SETTLE_STEP_SECONDS = 5.0
EVERY_SECONDS = 15.0
READING_SHARE = 0.2
"""Maximum share of the time that is spent reading agents."""


class NodeWatch:
    """The agents of the nodes of collectives."""

    def __init__(self, nodes: Nodes | None, members: Members) -> None:
        self._nodes, self._members = nodes, members

    async def rails(self, request: CheckRequest) -> tuple[str, ...]:
        """The devices of a request that are used on all of its nodes."""
        facts = await self._facts(request.nodes, fresh=False)
        return rails_of(request.test, [own.rdma_devices for own in facts.values()])

    async def in_use(self, nodes: Iterable[str]) -> str:
        """The nodes that jobs use, as a text for people; '' for none."""
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
            busy = await self._with_processes(nodes, ranks)
            if busy:
                return _text(busy)
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
