"""The pages that start a check: the choice of a kind, the form of each kind, its cost.

In: forms. Out: HTML, and checks.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from litestar import Response, get, post
from litestar.params import FromQuery

from nodevitals.checks.model import KINDS, Check, CheckRequest, Kind
from nodevitals.checks.requests.problems import OPERATIONS, TOOLS
from nodevitals.checks.requests.runs import WARM_UP
from nodevitals.errors import Wording
from nodevitals_hub.checks import planning
from nodevitals_hub.checks.check_requests import RefusedError
from nodevitals_hub.web import form
from nodevitals_hub.web.access import rank
from nodevitals_hub.web.api import own_key, requester_of
from nodevitals_hub.web.errors import STATUS, AnyRequest, page, redirect, shown_problems
from nodevitals_hub.web.spellings import LABEL, labels_of, with_lists

if TYPE_CHECKING:
    from nodevitals_hub.context import Hub

_DEFAULTS: dict[str, dict[str, str]] = {
    "pair": {"tool": "perftest", "iterations": "1000"},
    "matrix": {"tool": "perftest", "iterations": "1000"},
    "collective": {
        "tool": "nccl",
        "operation": "all_reduce",
        "sizes": "1GiB",
        "iterations": "20",
        "devices_per_node": "8",
        "devices_per_process": "1",
        "warm_up_iterations": str(WARM_UP),
        "reduction": "sum",
    },
    "node": {},
}
_OPTIONS_OF_PAIRS = {
    "device": "perftest -d, iperf3 -B",
    "port": "perftest -i",
    "sizes": "perftest -s, iperf3 -l",
    "iterations": "perftest -n",
    "seconds": "perftest -D, iperf3 -t",
    "queue_pairs": "perftest -q, iperf3 -P",
    "gid_index": "perftest -x",
    "traffic_class": "perftest --tclass, iperf3 --tos",
}
_OPTIONS_OF_COLLECTIVES = {
    "sizes": "-b -e -f",
    "iterations": "-n",
    "warm_up_iterations": "-w",
    "data_type": "-d",
    "reduction": "-o",
    "devices_per_process": "nccl-tests -g",
    "device": "NCCL_IB_HCA",
    "queue_pairs": "NCCL_IB_QPS_PER_CONNECTION",
    "gid_index": "NCCL_IB_GID_INDEX",
    "traffic_class": "NCCL_IB_TC",
    "environment": "mpirun -x",
    "mca": "mpirun --mca",
}
"""The names that the tools have for the fields: perftest, iperf3; nccl-tests, HCCL's, Open MPI."""
_OF_ALL = {"port": "1", "queue_pairs": "1", "share": "80"}


def presets_for(hub: Hub, kind: Kind) -> dict[str, str]:
    """The presets for a kind, with their parameters as text."""
    presets = {}
    for name, preset in planning.presets_of(hub.settings).items():
        if preset.kind == kind or set(TOOLS[preset.kind]) & set(TOOLS[kind]):
            test = preset.test
            words = (test.tool or "", test.operation, test.device, test.sizes)
            presets[name] = " ".join(filter(None, words))
    return presets


def show_form(
    hub: Hub,
    request: AnyRequest,
    kind: Kind,
    fields: Mapping[str, str],
    check: Check | None = None,
    refused: str = "",
    problems: Mapping[str, str] | None = None,
) -> Response[str]:
    """The form of a kind; with a check, its cost above the form."""
    labels = labels_of(hub.checks.members())
    basic, more = form.SHOWN[kind]
    role = requester_of(request).role
    return page(
        request,
        "form.html",
        STATUS[refused] if refused else 200,
        kind=kind,
        kinds=KINDS,
        fields=with_lists(fields, labels),
        sent={name: value for name, value in fields.items() if _is_field(name)},
        check=check,
        refused=refused,
        problems=shown_problems(request, problems or {}),
        basic=basic,
        more=more,
        choices={"tool": TOOLS[kind]},
        operations={tool: OPERATIONS[tool] for tool in TOOLS[kind]},
        several=form.SEVERAL if kind in ("pair", "matrix") else (),
        options=_OPTIONS_OF_COLLECTIVES if kind == "collective" else _OPTIONS_OF_PAIRS,
        defaults={**_OF_ALL, **_DEFAULTS[kind], **_of_preset(hub, kind, fields.get("preset", ""))},
        presets=presets_for(hub, kind),
        labels=labels,
        label_prefix=LABEL,
        areas=form.PAIRS_OF_NAMES,
        counted=(*form.NUMBERS, "rounds"),
        members=len(hub.checks.members()),
        may_force=role == "act",
        may_run=rank(role) >= rank("run"),
        cluster=hub.settings.cluster,
    )


def _of_preset(hub: Hub, kind: Kind, name: str) -> dict[str, str]:
    """The fields that a preset fills in."""
    preset = planning.presets_of(hub.settings).get(name)
    return form.fields_from(CheckRequest(kind=kind, test=preset.test)) if preset else {}


def _is_field(name: str) -> bool:
    return name in form.FIELDS or name.startswith(LABEL)


def handlers(hub: Hub) -> list[Any]:
    """The handlers of Litestar."""

    @get("/checks/new", include_in_schema=False)
    async def new(request: AnyRequest, copy: FromQuery[str] = "") -> Response[str]:
        """The kinds; with a kind, its form, with the fields of the address or of a check."""
        fields = {name: value for name, value in request.query_params.items() if _is_field(name)}
        if copy:
            copied = form.fields_from((await hub.checks.check(copy)).request)
            if "nodes" in fields:
                copied.pop("where", None)
            fields = {**copied, **fields}
        kind = next((kind for kind in KINDS if kind == fields.get("kind")), None)
        if kind is None:
            return page(
                request,
                "kinds.html",
                kinds=KINDS,
                presets={kind: presets_for(hub, kind) for kind in KINDS},
                cluster=hub.settings.cluster,
            )
        return show_form(hub, request, kind, fields)

    @post("/checks/new", include_in_schema=False, status_code=200)
    async def start(request: AnyRequest) -> Response[str]:
        """Show the cost, or start."""
        fields = form.fields_of(await request.body())
        kind = next((kind for kind in KINDS if kind == fields.get("kind")), None)
        if kind is None:
            raise RefusedError("invalid", Wording("kind: choose {words}", words=", ".join(KINDS)))
        requester = requester_of(request)
        try:
            wanted = form.request_of(fields)
            if fields.get("do") == "start":
                check = await hub.checks.submit(wanted, requester, _key(fields, requester.name))
                return redirect(f"/checks/{check.id}")
            check = await hub.checks.estimate(wanted, requester)
            return show_form(hub, request, kind, fields, check)
        except RefusedError as error:
            problems = {"nodes" if error.kind == "conflict" else "": error.args[0]}
            if error.kind == "invalid":
                problems = form.by_field(error.problems)
            return show_form(hub, request, kind, fields, None, error.kind, problems)

    return [new, start]


def _key(fields: Mapping[str, str], name: str) -> str:
    """The idempotency key of a page that was shown: a double click starts one check."""
    shown = fields.get("shown", "")
    return own_key("page", name, shown) if shown and shown.isascii() and len(shown) < 100 else ""
