"""The way from a node, an alert or a job to the form of a check: with partners, ready to start.

In: names or instances of nodes; the name of an alert, of a preset, or an earlier check. Out: the
fields of the form.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

from litestar import Request, Response, get
from litestar.params import FromQuery
from msgspec.structs import replace

from nodevitals.checks.model import CheckRequest
from nodevitals_hub.checks import planning
from nodevitals_hub.settings.hub import AlertCheckSettings
from nodevitals_hub.triggers.alert_plan import Group, Known, node_of, partners, request_of
from nodevitals_hub.triggers.alerts import Alerts

if TYPE_CHECKING:
    from nodevitals_hub.context import Hub

PATH = "/checks/for"
ENOUGH = 4
"""So many nodes need no partners: each has three among them, as many as a verdict needs."""
MAX_NODES = 500


async def proposed(
    hub: Hub,
    alerts: Alerts,
    wanted: list[str],
    alertname: str = "",
    preset: str = "",
    copy: str = "",
    asks: bool = True,
) -> dict[str, str]:
    """The fields of the form for a check of nodes, with idle partners of the same group that have
    no alert. `copy`: the check whose parameters are taken. `asks`: whether to ask the agents which
    nodes jobs use. Raises RefusedError.
    """
    members = {member.name: member for member in hub.checks.members()}
    names = [node_of({"instance": name, "node": name}, members) or name for name in wanted]
    names = list(dict.fromkeys(names))[:MAX_NODES]
    rule = _rule(hub, alertname, preset)
    kind = await _kind(hub, rule.preset, copy)
    fields = {"kind": kind, "preset": rule.preset, "copy": copy, "nodes": " ".join(names)}
    known = [name for name in names if name in members]
    if known and len(names) < ENOUGH and kind != "node":
        value = members[known[0]].labels.get(rule.group_by, "")
        found = Known(members, alerts.alerting(), {})
        group = Group(rule, tuple(known), partners(rule, value, known, found))
        others = await _idle(hub, group, asks)
        fields["nodes"] = " ".join([*names, *others])
        fields["note"] = f"{', '.join(names)} with healthy partners"
    if alertname:
        fields["note"] = f"alert {alertname} of {', '.join(names)}"[:500]
    return {name: text for name, text in fields.items() if text}


async def _kind(hub: Hub, preset: str, copy: str) -> str:
    """The kind of an earlier check or of a preset; a pair with partners is a matrix."""
    if copy:
        kind = (await hub.checks.check(copy)).request.kind
    else:
        settings = planning.presets_of(hub.settings).get(preset)
        kind = settings.kind if settings else "matrix"
    return "matrix" if kind == "pair" else kind


def _rule(hub: Hub, alertname: str, preset: str) -> AlertCheckSettings:
    """The rule of an alert; without one, the group of the first rule."""
    rules = {rule.alertname: rule for rule in hub.settings.alerts}
    first = next(iter(rules.values()), AlertCheckSettings(alertname="", preset=""))
    rule = rules.get(alertname) or replace(first, alertname=alertname, preset="")
    return replace(rule, preset=preset) if preset else rule


async def _idle(hub: Hub, group: Group, asks: bool) -> tuple[str, ...]:
    """The partners that jobs do not use."""
    in_use: set[str] = set()
    if asks and group.partners:
        asked = CheckRequest(kind="matrix", nodes=(*group.suspects, *group.partners))
        in_use = set(await hub.checks.in_use(asked)) - set(group.suspects)
    try:
        nodes = request_of(group, in_use, "matrix").nodes
    except ValueError:
        return ()
    return nodes[len(group.suspects) :]


def handlers(hub: Hub, alerts: Alerts) -> list[Any]:
    """The handlers of Litestar."""

    @get(PATH, include_in_schema=False)
    async def propose(
        request: Request[Any, Any, Any],
        nodes: FromQuery[str] = "",
        alert: FromQuery[str] = "",
        preset: FromQuery[str] = "",
        copy: FromQuery[str] = "",
    ) -> Response[str]:
        """The form of a check of these nodes."""
        wanted = nodes.replace(",", " ").split()
        asks = request.scope["user"].role != "read"
        fields = await proposed(hub, alerts, wanted, alert[:200], preset, copy, asks)
        place = {"location": f"/checks/new?{urlencode(fields)}"}
        return Response("", status_code=303, media_type="text/html", headers=place)

    return [propose]
