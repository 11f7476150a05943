"""The pages that show checks; none needs a script.

In: requests that passed the gate. Out: HTML.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from litestar import Response, get, post
from litestar.params import FromPath, FromQuery

from nodevitals.checks.model import KINDS, CheckRequest
from nodevitals.probes.fabric.tools.report import LATENCY
from nodevitals_hub.web import form, form_pages
from nodevitals_hub.web.access import Access, rank
from nodevitals_hub.web.api import requester_of
from nodevitals_hub.web.errors import AnyRequest, page, redirect
from nodevitals_hub.web.heatmap import MAX_RAW_CHARACTERS, TONES, Overviews
from nodevitals_hub.web.rendering import STYLE

if TYPE_CHECKING:
    from nodevitals_hub.context import Hub

PAGE_CHECKS = 50
REFRESH_SECONDS = 3


def handlers(hub: Hub, access: Callable[[], Access]) -> list[Any]:
    """The handlers of Litestar."""
    overviews = Overviews(hub.checks)

    @get("/", include_in_schema=False)
    async def index(
        request: AnyRequest,
        before: FromQuery[str] = "",
        kind: FromQuery[str] = "",
        node: FromQuery[str] = "",
        outcome: FromQuery[str] = "",
    ) -> Response[str]:
        """The newest checks."""
        chosen = next((known for known in KINDS if known == kind), None)
        checks = await hub.checks.list(PAGE_CHECKS, before, chosen, node, outcome)
        return page(
            request,
            "list.html",
            checks=checks,
            more=len(checks) == PAGE_CHECKS,
            chosen={"kind": kind, "node": node, "outcome": outcome, "before": before},
            kinds=KINDS,
            may_run=rank(requester_of(request).role) >= rank("run"),
            can_log_in=access().has_users,
            cluster=hub.settings.cluster,
        )

    @get("/checks/{identity:str}", include_in_schema=False)
    async def show(identity: FromPath[str], request: AnyRequest) -> Response[str]:
        """One check."""
        check = await hub.checks.check(identity)
        return page(
            request,
            "check.html",
            check=check,
            found=await overviews.of(check),
            latency=check.request.test.operation in LATENCY,
            request_fields=parameters_of(check.request),
            bad={finding.subject for finding in check.verdict.findings} if check.verdict else set(),
            tones=TONES,
            raw_characters=MAX_RAW_CHARACTERS,
            refresh=REFRESH_SECONDS if check.phase in ("queued", "running") else False,
            may_run=rank(requester_of(request).role) >= rank("run"),
            cluster=hub.settings.cluster,
        )

    @get("/login", include_in_schema=False)
    async def login() -> Response[str]:
        """The gate requires a login on this path; then the list."""
        return redirect("/")

    @get("/static/style.css", include_in_schema=False, media_type="text/css")
    async def style() -> Response[bytes]:
        """The style sheet."""
        keep = {"cache-control": "max-age=3600"}
        return Response(STYLE, media_type="text/css; charset=utf-8", headers=keep)

    @post("/checks/{identity:str}/cancel", include_in_schema=False, status_code=200)
    async def cancel(identity: FromPath[str], request: AnyRequest) -> Response[str]:
        """End a check."""
        check = await hub.checks.cancel(identity, requester_of(request))
        return redirect(f"/checks/{check.id}")

    own = [index, show, login, style, cancel]
    return [*own, *form_pages.handlers(hub)]


def parameters_of(request: CheckRequest) -> dict[str, str]:
    """The parameters of a request by form field, without the nodes and the note."""
    return {
        name: text
        for name, text in form.fields_from(request).items()
        if name not in ("kind", "nodes", "note")
    }
