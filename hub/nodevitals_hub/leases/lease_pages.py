"""The page of leases: the nodes monitored every second, and a form for a new lease.

In: forms. Out: HTML, and leases.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, get_type_hints

from litestar import Response, get, post
from litestar.params import FromPath

from nodevitals.checks.model import NodeName
from nodevitals.document import Problem
from nodevitals.errors import Wording
from nodevitals.probes.fabric.leases import ProbeName
from nodevitals.wire import MAX_LEASED_PROBES
from nodevitals_hub.checks.check_requests import RefusedError
from nodevitals_hub.leases.lease_book import LONGEST_SECONDS, SHORTEST_SECONDS, LeaseWanted
from nodevitals_hub.leases.leases import Leases
from nodevitals_hub.web.access import rank
from nodevitals_hub.web.api import requester_of
from nodevitals_hub.web.errors import STATUS, AnyRequest, page, redirect, shown_problems
from nodevitals_hub.web.form import fields_of
from nodevitals_hub.web.spellings import (
    LABEL,
    fitting,
    labels_of,
    names_of,
    seconds_of,
    wanted_labels,
    with_lists,
)

if TYPE_CHECKING:
    from nodevitals_hub.context import Hub

PROBES = ("rdma", "network", "nvidia", "ascend", "node")
"""The most common probes; others are entered as text."""
PROBE = "probe."
MAX_NODES_SHOWN = 200
USUAL_DURATION = "30m"
_HINTS = get_type_hints(LeaseWanted, include_extras=True)
_ORDER = ("unreachable", "refused", "waiting", "active")


def lease_of(fields: Mapping[str, str]) -> LeaseWanted:
    """The request that a form describes. Raises RefusedError."""
    problems: list[Problem] = []
    values: dict[str, Any] = {}
    readers: dict[str, Callable[[], Any]] = {
        "nodes": lambda: fitting(names_of(fields.get("nodes", "")), tuple[NodeName, ...]),
        "where": lambda: wanted_labels(fields),
        "probes": lambda: _probes_of(fields),
        "duration": lambda: _seconds_of(fields),
        "note": lambda: fitting(fields.get("note", ""), _HINTS["note"]),
    }
    for name, read in readers.items():
        try:
            values["seconds" if name == "duration" else name] = read()
        except ValueError as error:
            problems.append(Problem(name, error.args[0]))
    if problems:
        raise RefusedError("invalid", *problems)
    return LeaseWanted(**values)


def _probes_of(fields: Mapping[str, str]) -> tuple[str, ...]:
    chosen = [name for name in PROBES if fields.get(PROBE + name) == "yes"]
    probes = list(dict.fromkeys([*chosen, *names_of(fields.get("other_probes", ""))]))
    if not probes:
        raise ValueError(Wording("choose a probe, or name one"))
    if len(probes) > MAX_LEASED_PROBES:
        text = Wording(
            "{count} probes: choose at most {most}", count=len(probes), most=MAX_LEASED_PROBES
        )
        raise ValueError(text)
    checked: tuple[str, ...] = fitting(probes, tuple[ProbeName, ...])
    return checked


def _seconds_of(fields: Mapping[str, str]) -> float:
    text = fields.get("duration") or USUAL_DURATION
    return seconds_of(text, SHORTEST_SECONDS, LONGEST_SECONDS)


def _by_field(problems: Iterable[Problem]) -> dict[str, str]:
    """The problems by form field; the request's `seconds` is the form's `duration`."""
    return {
        "duration" if problem.path == "seconds" else problem.path: problem.message
        for problem in problems
    }


def _show(
    hub: Hub,
    leases: Leases,
    request: AnyRequest,
    fields: Mapping[str, str],
    refused: str = "",
    problems: Mapping[str, str] | None = None,
) -> Response[str]:
    nodes = sorted(leases.nodes(), key=lambda node: (_ORDER.index(node.state), node.name))
    labels = labels_of(hub.checks.members())
    return page(
        request,
        "leases.html",
        STATUS[refused] if refused else 200,
        leases=leases.all(),
        nodes=nodes[:MAX_NODES_SHOWN],
        all_nodes=len(nodes),
        fields=with_lists(fields, labels),
        refused=refused,
        problems=shown_problems(request, problems or {}),
        labels=labels,
        label_prefix=LABEL,
        probes=PROBES,
        probe_prefix=PROBE,
        longest=hub.settings.leases.max_duration,
        members=len(hub.checks.members()),
        may_run=rank(requester_of(request).role) >= rank("run"),
        cluster=hub.settings.cluster,
    )


def handlers(hub: Hub, leases: Leases) -> list[Any]:
    """The handlers of Litestar."""

    @get("/leases", include_in_schema=False)
    async def show(request: AnyRequest) -> Response[str]:
        """The leases that last, and the form."""
        return _show(hub, leases, request, dict(request.query_params.items()))

    @post("/leases", include_in_schema=False, status_code=200)
    async def ask(request: AnyRequest) -> Response[str]:
        """Begin a lease."""
        fields = fields_of(await request.body())
        try:
            await leases.ask(lease_of(fields), requester_of(request))
        except RefusedError as error:
            problems = _by_field(error.problems)
            return _show(hub, leases, request, fields, error.kind, problems)
        return redirect("/leases")

    @post("/leases/{identity:str}/end", include_in_schema=False, status_code=200)
    async def end(identity: FromPath[str], request: AnyRequest) -> Response[str]:
        """End a lease."""
        await leases.end(identity, requester_of(request))
        return redirect("/leases")

    return [show, ask, end]
