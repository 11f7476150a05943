"""The pages, which need no script.

In: requests that passed the gate, forms. Out: HTML.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Callable, Optional
from urllib.parse import parse_qsl

import msgspec
from litestar import Request, Response, get, post
from litestar.params import FromPath, FromQuery

from nodevitals.checks.model import KINDS, Check, CheckRequest, TestRequest
from nodevitals.hub import planning
from nodevitals.hub.checks import RefusedError
from nodevitals.hub.web.access import Access, rank
from nodevitals.hub.web.api import requester_of
from nodevitals.hub.web.errors import status_and_text
from nodevitals.hub.web.heatmap import MAX_RAW_CHARACTERS, overview
from nodevitals.hub.web.rendering import STYLE, language_of, render
from nodevitals.probes.fabric.report import BANDWIDTH, COLLECTIVES, LATENCY

if TYPE_CHECKING:
    from nodevitals.hub.context import Hub

AnyRequest = Request[Any, Any, Any]
PAGE_CHECKS = 50
REFRESH_SECONDS = 3
MAX_FIELDS = 60
_TEXT_FIELDS = ("tool", "operation", "device", "sizes")
_NUMBER_FIELDS = (
    *("port", "iterations", "seconds", "queue_pairs", "gid_index", "traffic_class"),
    "devices_per_node",
)


def page(request: AnyRequest, template: str, status: int = 200, **values: Any) -> Response[str]:
    """A page; `?lang=` is remembered in a cookie."""
    text = render(request.scope, template, **values)
    headers = {"content-language": language_of(request.scope), "vary": "Accept-Language, Cookie"}
    if "lang" in request.query_params:
        cookie = f"lang={language_of(request.scope)}; Path=/; Max-Age=31536000; SameSite=Lax"
        headers["set-cookie"] = f"{cookie}; HttpOnly"
    return Response(text, media_type="text/html", status_code=status, headers=headers)


def fields_of(body: bytes) -> dict[str, str]:
    """The fields of a form, of each the last. Raises RefusedError."""
    try:
        pairs = parse_qsl(
            body.decode(), keep_blank_values=True, max_num_fields=MAX_FIELDS, errors="strict"
        )
    except ValueError:
        raise RefusedError("invalid", "not a form of this page") from None
    return {name: value.strip() for name, value in pairs}


def request_of(fields: dict[str, str]) -> CheckRequest:
    """The request that a form describes. Raises RefusedError."""
    test: dict[str, Any] = {name: fields[name] for name in _TEXT_FIELDS if fields.get(name)}
    test.update({name: _number(name, fields) for name in _NUMBER_FIELDS if fields.get(name)})
    found: dict[str, Any] = {"kind": fields.get("kind", ""), "test": test}
    found["nodes"] = fields.get("nodes", "").replace(",", " ").split()
    found["where"] = dict(_label(one) for one in fields.get("where", "").split())
    found["force"] = fields.get("force") == "yes"
    for name in ("preset", "note"):
        found[name] = fields.get(name, "")
    if fields.get("rounds"):
        found["rounds"] = _number("rounds", fields)
    try:
        return msgspec.convert(found, CheckRequest)
    except msgspec.ValidationError as error:
        raise RefusedError("invalid", str(error)) from None


def _number(name: str, fields: dict[str, str]) -> int:
    text = fields[name]
    if not (text.isascii() and text.isdecimal() and len(text) <= 12):
        raise RefusedError("invalid", f"{name}: {text[:40]!r} is not a whole number")
    return int(text)


def _label(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals:
        raise RefusedError("invalid", f"labels: write NAME=VALUE instead of {text[:40]!r}")
    return name, value


def fields_from(check: Check) -> dict[str, str]:
    """The fields of the form that would start the same check."""
    request = check.request
    found = {"kind": request.kind, "nodes": "\n".join(request.nodes), "note": request.note}
    for name in (*_TEXT_FIELDS, *_NUMBER_FIELDS):
        value = getattr(request.test, name)
        if value != getattr(TestRequest(), name):
            found[name] = str(value)
    if request.rounds:
        found["rounds"] = str(request.rounds)
    return found


def _form(
    hub: Hub,
    request: AnyRequest,
    fields: dict[str, str],
    check: Optional[Check] = None,
    problem: str = "",
    status: int = 200,
) -> Response[str]:
    return page(
        request,
        "new.html",
        status,
        fields=fields,
        check=check,
        problem=problem,
        kinds=KINDS,
        members=len(hub.checks.members()),
        presets=planning.presets_of(hub.settings),
        tools=("perftest", "iperf3", "nccl", "hccl"),
        operations=(*BANDWIDTH, *LATENCY, "tcp", *COLLECTIVES),
        numbers=_NUMBER_FIELDS,
        may_force=requester_of(request).role == "act",
        cluster=hub.settings.cluster,
    )


def _forms(hub: Hub) -> list[Any]:
    @get("/checks/new", include_in_schema=False)
    async def new(request: AnyRequest, copy: FromQuery[str] = "") -> Response[str]:
        """The form, empty or with the parameters of a check."""
        fields = {"kind": "matrix"}
        if copy:
            fields = fields_from((await hub.checks.get(copy)).check)
        return _form(hub, request, fields)

    @post("/checks/new", include_in_schema=False, status_code=200)
    async def start(request: AnyRequest) -> Response[str]:
        """Show the cost, or start."""
        fields: dict[str, str] = {}
        try:
            fields = fields_of(await request.body())
            wanted, requester = request_of(fields), requester_of(request)
            if fields.get("do") == "start":
                check = await hub.checks.submit(wanted, requester, _key(fields, requester.name))
                place = {"location": f"/checks/{check.id}"}
                return Response("", status_code=303, media_type="text/html", headers=place)
            return _form(hub, request, fields, await hub.checks.estimate(wanted, requester))
        except RefusedError as error:
            status, text = status_and_text(error)
            return _form(hub, request, fields, None, text, status)

    @post("/checks/{identity:str}/cancel", include_in_schema=False, status_code=200)
    async def cancel(identity: FromPath[str], request: AnyRequest) -> Response[str]:
        """End a check."""
        check = await hub.checks.cancel(identity, requester_of(request))
        place = {"location": f"/checks/{check.id}"}
        return Response("", status_code=303, media_type="text/html", headers=place)

    return [new, start, cancel]


def _key(fields: dict[str, str], name: str) -> str:
    """A double click starts one check."""
    shown = fields.get("shown", "")
    return f"page {name} {shown}" if shown and shown.isascii() and len(shown) < 100 else ""


def handlers(hub: Hub, access: Callable[[], Access]) -> list[Any]:
    """The handlers of Litestar."""

    @get("/", include_in_schema=False)
    async def index(
        request: AnyRequest,
        before: FromQuery[str] = "",
        kind: FromQuery[str] = "",
        node: FromQuery[str] = "",
        outcome: FromQuery[str] = "",
    ) -> Response[str]:
        """The newest checks."""
        chosen = next((one for one in KINDS if one == kind), None)
        found = await hub.checks.list(PAGE_CHECKS, before, chosen, node, outcome)
        return page(
            request,
            "list.html",
            checks=found,
            more=len(found) == PAGE_CHECKS,
            chosen={"kind": kind, "node": node, "outcome": outcome},
            kinds=KINDS,
            may_run=rank(requester_of(request).role) >= rank("run"),
            can_log_in=access().has_users,
            cluster=hub.settings.cluster,
        )

    @get("/checks/{identity:str}", include_in_schema=False)
    async def show(identity: FromPath[str], request: AnyRequest) -> Response[str]:
        """One check."""
        detail = await hub.checks.get(identity)
        found = await asyncio.to_thread(overview, detail)
        check = detail.check
        versions = {}
        for run in detail.results[:100]:
            versions.update(run.versions)
        return page(
            request,
            "check.html",
            check=check,
            found=found,
            versions=versions,
            latency=check.request.test.operation in LATENCY,
            test=msgspec.to_builtins(check.request.test),
            raw_characters=MAX_RAW_CHARACTERS,
            refresh=REFRESH_SECONDS if check.phase in ("queued", "running") else False,
            may_run=rank(requester_of(request).role) >= rank("run"),
            cluster=hub.settings.cluster,
        )

    @get("/login", include_in_schema=False)
    async def login() -> Response[str]:
        """The gate asks for a login; then the list."""
        return Response("", status_code=303, media_type="text/html", headers={"location": "/"})

    @get("/static/style.css", include_in_schema=False, media_type="text/css")
    async def style() -> Response[bytes]:
        """The style sheet."""
        keep = {"cache-control": "max-age=3600"}
        return Response(STYLE, media_type="text/css; charset=utf-8", headers=keep)

    return [index, show, login, style, *_forms(hub)]
