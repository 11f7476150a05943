"""Asks other nodes whether they reach a node: their agents, directly, and not Prometheus.

In: an isolation for faults of logins, connections or services. Out: a verdict. Asked are nodes that
test this one and have no isolation themselves, and the node itself, about its units.
"""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from typing import TYPE_CHECKING

from nodevitals_hub.alerting.prometheus_queries import AskingError
from nodevitals_hub.alerting.servers import Servers
from nodevitals_hub.checks.peer_sights import Sights
from nodevitals_hub.isolation import recovery
from nodevitals_hub.isolation.isolation_book import Book
from nodevitals_hub.isolation.recovery import Verdict
from nodevitals_hub.records import Fault, Isolation
from nodevitals_hub.settings.response import RecoverySettings
from nodevitals_hub.triggers.alert_plan import node_of

if TYPE_CHECKING:
    from nodevitals_hub.context import Hub

MAX_ASKED = 32


class Observers:
    """The other nodes of a hub."""

    def __init__(self, hub: Hub, servers: Servers, book: Book) -> None:
        self._hub, self._servers, self._book = hub, servers, book

    async def confirmed(
        self, isolation: Isolation, faults: Sequence[Fault], settings: RecoverySettings
    ) -> Verdict:
        """Whether other nodes confirm these faults, as they are now."""
        try:
            sights = await self._sights(isolation)
        except AskingError as error:
            return Verdict(None, str(error))
        return recovery.confirmed(isolation.node, faults, sights, settings.observers)

    async def reached(self, isolation: Isolation, settings: RecoverySettings) -> Verdict:
        """Whether other nodes reach a node again."""
        faults = [fault for fault in isolation.faults if fault.fault in settings.faults]
        try:
            sights = await self._sights(isolation) if faults else {}
        except AskingError as error:
            return Verdict(None, str(error))
        return recovery.reached(isolation.node, faults, sights, settings.observers)

    async def _sights(self, isolation: Isolation) -> Sights:
        """What nodes that test this one report. Raises AskingError."""
        members, server = self._hub.members.by_name, self._servers.prometheus
        if server is None:
            raise AskingError("prometheus: not set")
        samples = await server.query(reporters_query(isolation.node))
        cluster = self._hub.settings.cluster
        testers = {
            node_of(sample.labels, members)
            for sample in samples
            if not cluster or sample.labels.get("cluster", "") in ("", cluster)
        }
        out = {other.node for other in self._book.open.values()}
        names = sorted(name for name in testers if name is not None and name not in out)
        random.Random(isolation.id).shuffle(names)  # no secret
        sights: Sights = await self._hub.checks.sights([isolation.node, *names[:MAX_ASKED]])
        return sights


def reporters_query(node: str) -> str:
    """The nodes that have tested this one, by the probes peers and fabric."""
    name = json.dumps(node)  # as PromQL writes a text
    parts = [f'nodevitals_peer_reachable{{job="nodevitals", peer={name}}}']
    for family in ("nodevitals_fabric_failure", "nodevitals_fabric_bandwidth_bytes_per_second"):
        parts += [f'{family}{{job="nodevitals", {end}={name}}}' for end in ("source", "peer")]
    return f"group by (cluster, instance) ({' or '.join(parts)})"
