"""The REST API of checks, nodes and presets.

In: requests that passed the gate. Out: the records of checks/model.py as JSON, results as CSV.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
from litestar import Request, Response, delete, get, post
from litestar.params import FromPath, FromQuery, JSONBody, QueryParameter

from nodevitals.checks.model import Check, CheckDetail, CheckRequest, Kind, Requester, Role
from nodevitals.checks.verdicts.tables import as_csv
from nodevitals_hub.checks import planning
from nodevitals_hub.checks.check_requests import RefusedError
from nodevitals_hub.web.results.comparison import Comparison, compare

if TYPE_CHECKING:
    from nodevitals_hub.context import Hub

PATH = "/api/v1/checks"
MAX_LISTED = 1000

KEY_HEADER = "idempotency-key"
MAX_KEY_CHARACTERS = 200


class NodeEntry(msgspec.Struct, frozen=True, kw_only=True):
    """A node on the lists."""

    name: str
    labels: dict[str, str]


class Me(msgspec.Struct, frozen=True, kw_only=True):
    """The client as the hub sees it."""

    name: str
    role: Role


def requester_of(request: Request[Any, Any, Any]) -> Requester:
    """The requester, as the gate has determined it."""
    requester: Requester = request.scope["user"]
    return requester


def own_key(trigger: str, name: str, key: str) -> str:
    """An idempotency key that is unique per client; JSON keeps names with spaces apart."""
    return f"{trigger} {msgspec.json.encode([name, key]).decode()}"


async def comparison_of(hub: Hub, identity: str, earlier: str) -> Comparison:
    """A check compared with an earlier one. Raises RefusedError."""
    detail, other = await hub.checks.get(identity), await hub.checks.get(earlier)
    return await asyncio.to_thread(compare, detail, other)


def _reading_handlers(hub: Hub) -> list[Any]:
    @get(PATH)
    async def list_checks(
        limit: Annotated[int, QueryParameter(ge=1, le=MAX_LISTED)] = 100,
        before: FromQuery[str] = "",
        kind: FromQuery[Kind | None] = None,
        node: FromQuery[str] = "",
        outcome: FromQuery[str] = "",
    ) -> list[Check]:
        """Checks, the newest first; from before an identity on."""
        return list(await hub.checks.list(limit, before, kind, node, outcome))

    @get(f"{PATH}/{{identity:str}}")
    async def get_check(identity: FromPath[str]) -> CheckDetail:
        """One check with its results."""
        return await hub.checks.get(identity)

    @get(f"{PATH}/{{identity:str}}/results.csv", media_type="text/csv")
    async def get_results(identity: FromPath[str]) -> Response[str]:
        """The results of one check, one row per run and size."""
        detail = await hub.checks.get(identity)
        name = {"content-disposition": f'attachment; filename="{detail.check.id}.csv"'}
        text = await asyncio.to_thread(as_csv, detail)
        return Response(text, media_type="text/csv", headers=name)

    @get(f"{PATH}/{{identity:str}}/comparison")
    async def get_comparison(
        identity: FromPath[str], earlier: Annotated[str, QueryParameter(name="with")]
    ) -> Comparison:
        """One check compared with an earlier one: the largest changes first."""
        return await comparison_of(hub, identity, earlier)

    @get("/api/v1/nodes")
    async def list_nodes() -> list[NodeEntry]:
        """The nodes that checks can be run on."""
        return [
            NodeEntry(name=member.name, labels=member.labels) for member in hub.checks.members()
        ]

    @get("/api/v1/presets")
    async def list_presets() -> dict[str, Any]:
        """The named parameters."""
        presets: dict[str, Any] = msgspec.to_builtins(planning.presets_of(hub.settings))
        return presets

    @get("/api/v1/me")
    async def me(request: Request[Any, Any, Any]) -> Me:
        """Name and role of the client."""
        requester = requester_of(request)
        return Me(name=requester.name, role=requester.role)

    return [list_checks, get_check, get_results, get_comparison, list_nodes, list_presets, me]


def handlers(hub: Hub) -> list[Any]:
    """The handlers of Litestar."""

    @post(PATH, status_code=201)
    async def submit(data: JSONBody[CheckRequest], request: Request[Any, Any, Any]) -> Check:
        """Start a check; with the same header Idempotency-Key once."""
        key = request.headers.get(KEY_HEADER, "")
        if len(key) > MAX_KEY_CHARACTERS or not (key.isascii() and key.isprintable()):
            text = f"write at most {MAX_KEY_CHARACTERS} printable ASCII characters"
            raise RefusedError("invalid", f"Idempotency-Key: {text}")
        requester = requester_of(request)
        # Keys are separate per client: it cannot use the key of a schedule or of another client.
        own = own_key("rest", requester.name, key) if key else ""
        return await hub.checks.submit(data, requester, own)

    @post(f"{PATH}/estimate", status_code=200)
    async def estimate(data: JSONBody[CheckRequest], request: Request[Any, Any, Any]) -> Check:
        """The check with its cost, not started."""
        return await hub.checks.estimate(data, requester_of(request))

    @delete(f"{PATH}/{{identity:str}}", status_code=200)
    async def cancel(identity: FromPath[str], request: Request[Any, Any, Any]) -> Check:
        """End a check that is queued or running."""
        return await hub.checks.cancel(identity, requester_of(request))

    return [submit, estimate, cancel, *_reading_handlers(hub)]
