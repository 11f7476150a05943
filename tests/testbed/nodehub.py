"""A hub in this process that takes nodes of a stand-in of an API server out of service."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec

from nodevitals_hub.records import Isolation
from testbed.kubernetes_api.nodes import NodeApi
from testbed.respond import Responding, responding

NODES = [f"gpu-{number}" for number in range(1, 21)]
FREE = {"nodes": 20, "share": 1.0, "per_hour": 20, "breaker_nodes": 1000, "breaker_share": 1.0}
XID = ("gpu-1", "nvidia_xid")


class NodeHub:
    """The hub, and the API server."""

    def __init__(self, found: Responding, api: NodeApi) -> None:
        self.found, self.api = found, api

    async def rounds(self, seconds: float, *faults: tuple[str, str]) -> None:
        """Rounds of 15 seconds with these faults."""
        await self.found.rounds(seconds, *faults, every=15)

    async def state(self, node: str = "gpu-1") -> str:
        """The state of a node's newest isolation; '' for none."""
        return (await self.found.states()).get(node, "")

    async def newest(self, node: str = "gpu-1") -> Isolation:
        """A node's newest isolation."""
        opened, ended = await self.found.isolations.book.listed(1000)
        mine = [one for one in (*opened, *ended) if one.node == node]
        return max(mine, key=lambda one: (one.created, one.id))  # ids are of the real second

    def samples(self, name: str) -> dict[tuple[str, ...], float]:
        """What /metrics shows of a family."""
        prefix = "nodevitals_hub_"
        shown = self.found.isolations.samples()
        return {labels: value for one, labels, value in shown if one.name == prefix + name}


@asynccontextmanager
async def node_hub(
    folder: Path, api: NodeApi, nodes: Sequence[str] = NODES, **settings: Any
) -> AsyncIterator[NodeHub]:
    """A hub on a folder; KUBECONFIG has to be that of the API server."""
    async with responding(folder, nodes, **{"limits": FREE, **settings}) as found:
        section = found.settings
        found.hub.settings = msgspec.structs.replace(
            found.hub.settings,
            out_of_service=msgspec.structs.replace(section, scheduler="kubernetes"),
        )
        test = settings.get("test")
        more = {} if test is None else {"test": test}
        found.isolations = found.made(**more)
        yield NodeHub(found, api)
