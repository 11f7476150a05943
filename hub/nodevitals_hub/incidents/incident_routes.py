"""The pages and the REST API of incidents."""

from __future__ import annotations

import time
from typing import Annotated, Any

import msgspec
from litestar import Request, Response, get, post
from litestar.params import FromPath, FromQuery, JSONBody

from nodevitals.errors import Wording
from nodevitals_hub.checks.check_requests import RefusedError
from nodevitals_hub.context import Hub
from nodevitals_hub.incidents import incident_summary, signed_links
from nodevitals_hub.incidents.incident_summary import Summary
from nodevitals_hub.incidents.incidents import Incidents
from nodevitals_hub.records import Incident
from nodevitals_hub.web.access import rank
from nodevitals_hub.web.api import requester_of
from nodevitals_hub.web.errors import page, redirect, shown_problems
from nodevitals_hub.web.form import fields_of

PATH = "/api/v1/incidents"
MOST_SHOWN = 300
"""Limit of a page: 10,000 incidents take seconds to render, and block the hub meanwhile."""
AnyRequest = Request[Any, Any, Any]
_REFUSED: dict[signed_links.Worth, str] = {
    "none": Wording("use the link of the notification, or log in with the role run"),
    "expired": Wording(
        "this link has expired: use that of a newer notification, or log in with the role run"
    ),
    "invalid": Wording(
        "this link is not valid for this incident: use that of its notification, or log in with"
        " the role run"
    ),
}
"""Why a link permits no acknowledgement."""


class Month(msgspec.Struct, frozen=True, kw_only=True):
    """The incidents of a month, the newest first, and their figures."""

    summary: Summary
    incidents: tuple[Incident, ...]


class Acknowledgement(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Who works on an incident."""

    name: Annotated[str, msgspec.Meta(max_length=100)] = ""
    """By default the name of the login or the token."""


class Mark(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A person's judgement of an incident."""

    false_alarm: bool
    note: Annotated[str, msgspec.Meta(max_length=500)] = ""


def handlers(hub: Hub, incidents: Incidents) -> list[Any]:
    """The REST API and the pages."""
    return [*_rest(hub, incidents), *_pages(hub, incidents)]


async def _month(hub: Hub, incidents: Incidents, month: str) -> Month:
    month = month or incident_summary.month_of(time.time())
    if not incidents.may_be_any():
        settings = hub.settings.incidents
        return Month(summary=incident_summary.summary(month, (), settings), incidents=())
    figures, listed = await incidents.month(month)
    return Month(summary=figures, incidents=tuple(listed))


async def _one(incidents: Incidents, identity: str) -> Incident:
    if not incidents.may_be_any():
        raise RefusedError("not_found", Wording("no such incident"))
    return await incidents.get(identity)


def _rest(hub: Hub, incidents: Incidents) -> list[Any]:
    @get(PATH)
    async def list_incidents(month: FromQuery[str] = "") -> Month:
        """The incidents of a month, by default this one (`2026-11`, UTC)."""
        return await _month(hub, incidents, month)

    @get(f"{PATH}/{{identity:str}}")
    async def get_incident(identity: FromPath[str]) -> Incident:
        """One incident."""
        return await _one(incidents, identity)

    @post(f"{PATH}/{{identity:str}}/acknowledge", status_code=200)
    async def acknowledge(
        identity: FromPath[str], data: JSONBody[Acknowledgement], request: AnyRequest
    ) -> Incident:
        """Note who works on it."""
        await _one(incidents, identity)
        name = data.name or requester_of(request).name
        return await incidents.acknowledge(identity, name)

    @post(f"{PATH}/{{identity:str}}/mark", status_code=200)
    async def mark(identity: FromPath[str], data: JSONBody[Mark], request: AnyRequest) -> Incident:
        """Note whether it was a false alarm."""
        await _one(incidents, identity)
        name = requester_of(request).name
        return await incidents.mark(identity, data.false_alarm, name, data.note)

    return [list_incidents, get_incident, acknowledge, mark]


def _pages(hub: Hub, incidents: Incidents) -> list[Any]:
    @get("/incidents", include_in_schema=False)
    async def index(request: AnyRequest, month: FromQuery[str] = "") -> Response[str]:
        """What is not resolved, and a month."""
        shown = await _month(hub, incidents, month)
        unresolved = await incidents.listed() if incidents.may_be_any() else ()
        first, last = incident_summary.bounds(shown.summary.month)
        counted = sum(
            severity.count for severity in shown.summary.severities
        )  # of many, not all are listed
        return page(
            request,
            "incidents.html",
            unresolved=unresolved[:MOST_SHOWN],
            more=len(unresolved[MOST_SHOWN:]),
            month=shown,
            shown=shown.incidents[:MOST_SHOWN],
            more_of_month=max(0, counted - MOST_SHOWN, len(shown.incidents) - MOST_SHOWN),
            before=incident_summary.month_of(first - 1),
            after=incident_summary.month_of(last) if last <= time.time() else "",
            cluster=hub.settings.cluster,
        )

    @get("/incidents/of/{fingerprint:str}", include_in_schema=False)
    async def of_alert(fingerprint: FromPath[str]) -> Response[str]:
        """The incident of an alert; what notifications link to that need no acknowledgement."""
        if not incidents.may_be_any():
            raise RefusedError("not_found", Wording("no incident has that alert"))
        incident = await incidents.with_alert(fingerprint)
        return redirect(f"/incidents/{incident.id}")

    @get("/incidents/{identity:str}", include_in_schema=False)
    async def show(identity: FromPath[str], request: AnyRequest) -> Response[str]:
        """One incident."""
        incident = await _one(incidents, identity)
        fields = {name: request.query_params.get(name, "") for name in signed_links.FIELDS}
        worth = incidents.worth(incident.id, fields)
        asker = requester_of(request)
        return page(
            request,
            "incident.html",
            incident=incident,
            name=asker.name,
            signed=fields if worth == "valid" else {},
            refused=shown_problems(request, {"link": _REFUSED.get(worth, "")})["link"],
            may_run=rank(asker.role) >= rank("run"),
            cluster=hub.settings.cluster,
        )

    @post("/incidents/{identity:str}/acknowledge", include_in_schema=False, status_code=200)
    async def acknowledge(identity: FromPath[str], request: AnyRequest) -> Response[str]:
        """Note who works on it: role run, or the link of a notification."""
        fields = fields_of(await request.body())
        incident, asker = await _one(incidents, identity), requester_of(request)
        may_run = rank(asker.role) >= rank("run")
        worth = incidents.worth(incident.id, fields)
        if not may_run and worth != "valid":
            raise RefusedError("forbidden", _REFUSED[worth])
        name = asker.name or fields.get("name", "")
        await incidents.acknowledge(incident.id, name, by_link=not may_run)
        return redirect(f"/incidents/{incident.id}")

    @post("/incidents/{identity:str}/mark", include_in_schema=False, status_code=200)
    async def mark(identity: FromPath[str], request: AnyRequest) -> Response[str]:
        """Note whether it was a false alarm."""
        fields = fields_of(await request.body())
        answer = fields.get("false_alarm")
        if answer not in ("yes", "no"):
            raise RefusedError("invalid", "false_alarm: yes or no")
        incident = await _one(incidents, identity)
        name = requester_of(request).name
        await incidents.mark(identity, answer == "yes", name, fields.get("note", "")[:500])
        return redirect(f"/incidents/{incident.id}")

    return [index, of_alert, show, acknowledge, mark]
