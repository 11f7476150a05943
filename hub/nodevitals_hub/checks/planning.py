"""Resolves a request; computes its cost, its runs, and the verdict on its results.

In: records of the agent's checks/model.py, the hub's settings and lists. Out: such records. Calls
the pure functions of the agent's `checks/`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import islice

from msgspec.structs import replace

from nodevitals.checks import CheckError
from nodevitals.checks.model import Check, CheckRequest, Cost, RunResult, Verdict
from nodevitals.checks.requests import cost as costs
from nodevitals.checks.requests.devices import expanded
from nodevitals.checks.requests.parameters import PresetLike, checked
from nodevitals.checks.requests.presets import PRESETS
from nodevitals.checks.requests.problems import problems
from nodevitals.checks.requests.rounds import Plan
from nodevitals.checks.verdicts.verdict import figures_of, to_repeat
from nodevitals.checks.verdicts.verdict import judge as verdict_on
from nodevitals.errors import Wording
from nodevitals_hub.checks.check_requests import Member, RefusedError
from nodevitals_hub.checks.runners import PlannedRun
from nodevitals_hub.settings.hub import HubSettings

MAX_RUNS = 1_000_000


def presets_of(settings: HubSettings) -> dict[str, PresetLike]:
    """All presets by name; the site's presets replace built-in ones of the same name."""
    return {**PRESETS, **settings.presets}


def resolve(
    request: CheckRequest,
    members: Mapping[str, Member],
    settings: HubSettings,
    without: Collection[str] = (),
) -> CheckRequest:
    """The request with all defaults and nodes filled in, except `without`. Raises RefusedError."""
    if without:
        left_out = set(without)
        members = {name: member for name, member in members.items() if name not in left_out}
        request = replace(request, nodes=tuple(n for n in request.nodes if n not in left_out))
    try:
        return checked(request, presets_of(settings), members.values())
    except CheckError as error:
        raise RefusedError("invalid", *error.problems) from None


def with_devices(request: CheckRequest, nodes: Iterable[Mapping[str, bool]]) -> CheckRequest:
    """The resolved request with the names of all devices; `nodes` has those of each node. Raises
    RefusedError.
    """
    try:
        device = expanded(request.test.device, nodes)
    except CheckError as error:
        raise RefusedError("invalid", *error.problems) from None
    complete = replace(request, test=replace(request.test, device=device))
    if wrong := list(problems(complete)):
        raise RefusedError("invalid", *wrong)
    return complete


def plan(request: CheckRequest) -> tuple[PlannedRun, ...]:
    """The runs of a resolved request, in the order in which they start; for a collective, the run
    over all nodes.
    """
    if request.kind == "node":
        return tuple(PlannedRun(number=n, nodes=(name,)) for n, name in enumerate(request.nodes))
    if request.kind == "collective":
        return (PlannedRun(number=0, nodes=request.nodes),)
    return tuple(
        PlannedRun(number=number, nodes=(pairing.source, pairing.target))
        for _, number, pairing in islice(Plan(request).numbered(), MAX_RUNS)
    )


def repetitions(check: Check, results: Sequence[RunResult]) -> tuple[PlannedRun, ...]:
    """The additional runs that a verdict on these results needs."""
    return tuple(PlannedRun(**repeat._asdict()) for repeat in to_repeat(check, results))


def cost(request: CheckRequest, settings: HubSettings) -> Cost:
    """The maximum cost of a resolved request. Raises RefusedError where it exceeds the limits."""
    estimate = costs.cost(request, settings.limits.pairs)
    most = settings.limits.node_hours
    if estimate.node_seconds > most * 3600 or estimate.runs > MAX_RUNS:
        text = Wording(
            "{runs} runs, {hours} node hours, over limits.node_hours ({most}): choose fewer nodes,"
            " rounds, sizes or iterations",
            runs=estimate.runs,
            hours=f"{estimate.node_seconds / 3600:.0f}",
            most=f"{most:g}",
        )
        raise RefusedError("invalid", text)
    return estimate


def judged(check: Check, results: Sequence[RunResult], isolation: Verdict | None = None) -> Check:
    """The check with the verdict on its results, and their figures."""
    known = figures_of(check, results)
    return replace(
        check,
        verdict=verdict_on(check, results, isolation),
        figure=next(iter(known.values()), None),
        figures=known if len(known) > 1 else {},
    )
