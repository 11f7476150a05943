"""The page of leases: which nodes are monitored every second, and a form to ask for it.

In: forms. Out: HTML, and leases.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Optional

import msgspec
from litestar import Response, get, post
from litestar.params import FromPath

from nodevitals.hub import leases as leases_module
from nodevitals.hub.checks import RefusedError
from nodevitals.hub.lease_book import LeaseWanted
from nodevitals.hub.web import form
from nodevitals.hub.web.access import rank
from nodevitals.hub.web.api import requester_of
from nodevitals.hub.web.errors import STATUS, one_line
from nodevitals.hub.web.responses import AnyRequest, page, redirect
from nodevitals.quantities import parse_duration

if TYPE_CHECKING:
    from nodevitals.hub.context import Hub

PROBES = ("rdma", "network", "nvidia", "ascend", "node")
"""Those that are asked for most; the others are typed."""
PROBE = "probe."
MAX_NODES_SHOWN = 200
_ORDER = ("unreachable", "refused", "waiting", "active")


def lease_of(fields: Mapping[str, str]) -> LeaseWanted:
    """The request that a form describes. Raises FormError."""
    problems: dict[str, str] = {}
    probes = [name for name in PROBES if fields.get(PROBE + name) == "yes"]
    probes += form.names_of(fields.get("other_probes", ""))
    if not probes:
        problems["probes"] = "choose a probe, or name one"
    seconds = 0.0
    try:
        seconds = parse_duration(fields.get("duration") or "30m")
    except ValueError as error:
        problems["duration"] = str(error)
    try:
        where = form.labels_from(fields)
    except ValueError as error:
        problems["where"], where = str(error), {}
    if problems:
        raise form.FormError(problems)
    nodes, note = form.names_of(fields.get("nodes", "")), fields.get("note", "")
    found = {"probes": list(dict.fromkeys(probes)), "nodes": nodes, "where": where, "note": note}
    try:
        return msgspec.convert({**found, "seconds": seconds}, LeaseWanted)
    except msgspec.ValidationError as error:
        raise form.FormError(_by_field(form.problem_of(str(error)))) from None


def _by_field(problems: Mapping[str, str]) -> dict[str, str]:
    """The request says seconds, the form duration."""
    return {"duration" if name == "seconds" else name: text for name, text in problems.items()}


def _show(
    hub: Hub,
    request: AnyRequest,
    fields: Mapping[str, str],
    refused: str = "",
    problems: Optional[Mapping[str, str]] = None,
) -> Response[str]:
    found = leases_module.of(hub)
    nodes = sorted(found.nodes(), key=lambda one: (_ORDER.index(one.state), one.name))
    labels = form.labels_of(hub.checks.members())
    return page(
        request,
        "leases.html",
        STATUS[refused] if refused else 200,
        leases=found.all(),
        nodes=nodes[:MAX_NODES_SHOWN],
        all_nodes=len(nodes),
        fields=form.with_lists(fields, labels),
        refused=refused,
        problems={name: one_line(text) for name, text in (problems or {}).items()},
        labels=labels,
        label_prefix=form.LABEL,
        probes=PROBES,
        probe_prefix=PROBE,
        longest=hub.settings.leases.max_duration,
        members=len(hub.checks.members()),
        may_run=rank(requester_of(request).role) >= rank("run"),
        cluster=hub.settings.cluster,
    )


def handlers(hub: Hub) -> list[Any]:
    """The handlers of Litestar."""

    @get("/leases", include_in_schema=False)
    async def show(request: AnyRequest) -> Response[str]:
        """The leases that last, and the form."""
        return _show(hub, request, dict(request.query_params.items()))

    @post("/leases", include_in_schema=False, status_code=200)
    async def ask(request: AnyRequest) -> Response[str]:
        """Begin a lease."""
        fields = form.fields_of(await request.body())
        try:
            await leases_module.of(hub).ask(lease_of(fields), requester_of(request))
        except form.FormError as error:
            return _show(hub, request, fields, error.kind, error.problems)
        except RefusedError as error:
            problems = _by_field(form.problems_of(str(error)))
            return _show(hub, request, fields, error.kind, problems)
        return redirect("/leases")

    @post("/leases/{identity:str}/end", include_in_schema=False, status_code=200)
    async def end(identity: FromPath[str], request: AnyRequest) -> Response[str]:
        """End a lease."""
        await leases_module.of(hub).end(identity, requester_of(request))
        return redirect("/leases")

    return [show, ask, end]
