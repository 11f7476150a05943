"""The REST API and the page of isolations.

In: requests. Out: isolations as JSON and as HTML; what a person approves, returns or cancels.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
from litestar import Request, Response, get, post
from litestar.params import FromPath

from nodevitals.errors import Wording
from nodevitals_hub.checks.check_requests import RefusedError
from nodevitals_hub.out_of_service.isolations import Isolations
from nodevitals_hub.records import Isolation
from nodevitals_hub.repair.repair_records import Repair
from nodevitals_hub.settings.response import LimitsPerPool
from nodevitals_hub.store.check_store import StoreError
from nodevitals_hub.web.access import needs, rank
from nodevitals_hub.web.api import requester_of
from nodevitals_hub.web.errors import STATUS, AnyRequest, page, redirect, shown_problems

if TYPE_CHECKING:
    from nodevitals_hub.context import Hub

PATH = "/api/v1/isolations"
NEWEST = 100
MAX_SHOWN = 200
IDENTITY = len("20270101-000000-abcdef")
"""Characters of an isolation's id, with which that of a repair begins."""


class IsolationList(msgspec.Struct, frozen=True, kw_only=True):
    """What the hub has taken out of service, or would have."""

    enabled: bool
    """Whether the configuration has the section out_of_service."""
    dry_run: bool = True
    open: tuple[Isolation, ...] = ()
    ended: tuple[Isolation, ...] = ()
    """The newest that have ended."""
    breaker_open: bool = False
    breaker_reason: str = ""
    problem: str = ""
    """Why nothing is decided or done at present, in one line."""
    repairs: tuple[Repair, ...] = ()
    """What was started for these isolations."""
    waiting_repairs: dict[str, str] = {}
    """Why a repair has not begun yet, by its id."""


async def listed(hub: Hub, isolations: Isolations) -> IsolationList:
    """The isolations of a hub. Raises RefusedError."""
    settings = hub.settings.out_of_service
    if settings is None:
        return IsolationList(enabled=False)
    opened, ended = await isolations.book.listed(NEWEST)
    try:
        repairs = await isolations.repairs.book.known([*opened, *ended])
    except StoreError as error:
        raise RefusedError("unavailable", str(error)) from None
    breaker = isolations.book.ledger.breaker
    return IsolationList(
        enabled=True,
        dry_run=settings.dry_run,
        open=tuple(opened),
        ended=tuple(ended),
        breaker_open=breaker.open,
        breaker_reason=breaker.reason,
        problem=isolations.problem,
        repairs=tuple(repairs),
        waiting_repairs=isolations.repairs.notes,
    )


def _show(
    hub: Hub, shown: IsolationList, request: AnyRequest, refused: str = "", kind: str = ""
) -> Response[str]:
    settings = hub.settings.out_of_service
    repairs: dict[str, list[Repair]] = {}
    for repair in shown.repairs:
        repairs.setdefault(repair.isolation, []).append(repair)
    waits: dict[str, list[tuple[str, str]]] = {}
    for name, text in sorted(shown.waiting_repairs.items()):
        waits.setdefault(name[:IDENTITY], []).append((name[IDENTITY + 1 :], text))
    return page(
        request,
        "isolations.html",
        STATUS[kind] if kind else 200,
        found=shown,
        opened=shown.open[:MAX_SHOWN],
        repairs=repairs,
        waits=waits,
        limits=LimitsPerPool() if settings is None else settings.limits,
        where=() if settings is None else settings.where,
        back=settings is not None and settings.back.enabled,
        refused=refused,
        may_act=rank(requester_of(request).role) >= rank("act"),
        cluster=hub.settings.cluster,
    )


def handlers(hub: Hub, isolations: Isolations) -> list[Any]:
    """The REST API and the pages."""

    async def approved(identity: str, request: Request[Any, Any, Any]) -> Isolation:
        after = await isolations.book.approve(identity, requester_of(request))
        isolations.wake()
        return after

    async def given_back(identity: str, request: Request[Any, Any, Any]) -> Isolation:
        after = await isolations.book.give_back(identity, requester_of(request))
        isolations.wake()
        return after

    @get(PATH)
    async def list_isolations() -> IsolationList:
        """The nodes out of service, those that were refused, and the newest that have ended."""
        return await listed(hub, isolations)

    @post(f"{PATH}/{{identity:str}}/approve", guards=[needs("act")], status_code=200)
    async def approve(identity: FromPath[str], request: Request[Any, Any, Any]) -> Isolation:
        """Take a node out of service although a limit or the breaker has refused it."""
        return await approved(identity, request)

    @post(f"{PATH}/{{identity:str}}/return", guards=[needs("act")], status_code=200)
    async def give_back(identity: FromPath[str], request: Request[Any, Any, Any]) -> Isolation:
        """Return a node to service, or cancel what was not done yet."""
        return await given_back(identity, request)

    @get("/isolations", include_in_schema=False)
    async def show(request: AnyRequest) -> Response[str]:
        """The same as a page."""
        return _show(hub, await listed(hub, isolations), request)

    @post(
        "/isolations/{identity:str}/{what:str}",
        include_in_schema=False,
        guards=[needs("act")],
        status_code=200,
    )
    async def act(
        identity: FromPath[str], what: FromPath[str], request: AnyRequest
    ) -> Response[str]:
        """The buttons of the page."""
        calls = {"approve": approved, "return": given_back}
        if what not in calls:
            raise RefusedError("not_found", Wording("no such page"))
        try:
            await calls[what](identity, request)
        except RefusedError as error:
            if error.kind == "not_found":
                raise
            shown = await listed(hub, isolations)
            refused = shown_problems(request, {"": error.args[0]})[""]
            return _show(hub, shown, request, refused, error.kind)
        return redirect("/isolations")

    return [list_isolations, approve, give_back, show, act]
