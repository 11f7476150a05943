"""The REST API of leases, and the targets of the second scrape job (http_sd)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
from litestar import Request, delete, get, post
from litestar.params import FromPath, JSONBody

from nodevitals_hub.leases.lease_book import HubLease, LeasedNode, LeaseWanted
from nodevitals_hub.leases.leases import Leases
from nodevitals_hub.web.api import requester_of

if TYPE_CHECKING:
    from nodevitals_hub.context import Hub

SD_PATH = "/api/v1/sd/fast"
LEASES_PATH = "/api/v1/leases"


class LeaseList(msgspec.Struct, frozen=True, kw_only=True):
    """The leases that last, and their nodes."""

    leases: tuple[HubLease, ...]
    nodes: tuple[LeasedNode, ...]


def handlers(hub: Hub, leases: Leases) -> list[Any]:
    """The handlers."""

    @get(LEASES_PATH)
    async def list_leases() -> LeaseList:
        """The leases that last, the newest first, and the state of each of their nodes."""
        return LeaseList(leases=leases.all(), nodes=leases.nodes())

    @post(LEASES_PATH)
    async def ask(data: JSONBody[LeaseWanted], request: Request[Any, Any, Any]) -> HubLease:
        """Run the named probes of these nodes every second for some time."""
        return await leases.ask(data, requester_of(request))

    @delete(f"{LEASES_PATH}/{{identity:str}}", status_code=200)
    async def end(identity: FromPath[str], request: Request[Any, Any, Any]) -> HubLease:
        """End a lease now."""
        return await leases.end(identity, requester_of(request))

    @get(SD_PATH)
    async def targets() -> list[dict[str, Any]]:
        """The nodes under leases, in the format of Prometheus' http_sd."""
        agents = hub.settings.agents
        if agents is None:
            return []
        return leases.scrape_targets(agents.metrics_port, agents.metrics_scheme)

    return [list_leases, ask, end, targets]
