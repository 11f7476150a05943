"""The pages that show checks; none needs a script.

In: requests that passed the gate. Out: HTML.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

from litestar import Response, get, post
from litestar.params import FromPath, FromQuery

from nodevitals.checks.model import KINDS, Check, CheckRequest
from nodevitals.checks.requests.runs import series_of
from nodevitals.probes.fabric.tools.report import LATENCY
from nodevitals_hub.checks.progress import Progress
from nodevitals_hub.web import form, form_pages
from nodevitals_hub.web.access import Access, rank
from nodevitals_hub.web.api import comparison_of, requester_of
from nodevitals_hub.web.errors import AnyRequest, page, redirect
from nodevitals_hub.web.heatmap import Overviews
from nodevitals_hub.web.rendering import STYLE
from nodevitals_hub.web.results import run_pages
from nodevitals_hub.web.results.comparison import Comparison, comparable
from nodevitals_hub.web.results.curve import Curve, curve_of
from nodevitals_hub.web.results.maps import TONES

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
        ended = check.phase not in ("queued", "running")
        return page(
            request,
            "check.html",
            check=check,
            now=None if ended else _now(hub, check),
            earlier=await _earlier(hub, check) if ended else (),
            compared=await _compared(hub, check, request.query_params.get("with", "")),
            found=await overviews.of(check),
            curve=await _curve(hub, check),
            latency=check.request.test.operation in LATENCY,
            latencies=LATENCY,
            request_fields=parameters_of(check.request),
            bad={finding.subject for finding in check.verdict.findings} if check.verdict else set(),
            tones=TONES,
            refresh=False if ended else REFRESH_SECONDS,
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
    return [*own, *form_pages.handlers(hub), *run_pages.handlers(hub)]


class _Now(NamedTuple):
    """The work of a check that has not ended."""

    progress: Progress
    seconds_more: float | None
    """At the present pace; None where there is none."""
    time: float


def _now(hub: Hub, check: Check) -> _Now:
    progress, now = hub.checks.progress(check), time.time()
    more, left = None, check.cost.runs - check.runs_done
    if check.started is not None and check.runs_done and left > 0:
        more = (now - check.started) / check.runs_done * left
        more = min(more, progress.seconds_left or more)
    return _Now(progress, more, now)


class _Compared(NamedTuple):
    """A check compared with an earlier one."""

    check: Check
    changes: Comparison
    parameters: tuple[tuple[str, str, str], ...]
    """Those that differ: field, now, earlier."""
    several: bool
    """Whether there are several operations or devices."""


async def _compared(hub: Hub, check: Check, identity: str) -> _Compared | None:
    if not identity:
        return None
    other = await hub.checks.check(identity)
    changes = await comparison_of(hub, check.id, identity)
    now, then = parameters_of(check.request), parameters_of(other.request)
    differ = [name for name in {**now, **then} if now.get(name) != then.get(name)]
    parameters = tuple((name, now.get(name, "-"), then.get(name, "-")) for name in differ)
    return _Compared(other, changes, parameters, len(series_of(check.request.test)) > 1)


async def _earlier(hub: Hub, check: Check) -> dict[str, list[Check]]:
    """Earlier checks to compare with: those of the same nodes, and others."""
    groups: dict[str, list[Check]] = {"same_nodes": [], "other_nodes": []}
    for other in await hub.checks.earlier(check):
        if comparable(check, other):
            same = set(other.request.nodes) == set(check.request.nodes)
            groups["same_nodes" if same else "other_nodes"].append(other)
    return {name: found for name, found in groups.items() if found}


async def _curve(hub: Hub, check: Check) -> Curve | None:
    if check.request.kind != "collective":
        return None
    return curve_of(await hub.checks.get(check.id))


def parameters_of(request: CheckRequest) -> dict[str, str]:
    """The parameters of a request by form field, without the nodes and the note."""
    return {
        name: text
        for name, text in form.fields_from(request).items()
        if name not in ("kind", "nodes", "note")
    }
