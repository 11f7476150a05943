"""What a request becomes: a resolved request, its cost, its runs, and the verdict on its results.

In: the records of checks/model.py. Out: the same. Here the pure functions of `checks/` meet the
hub's settings and lists.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from itertools import islice

from msgspec.structs import replace

from nodevitals.checks import CheckError
from nodevitals.checks.model import Check, CheckRequest, Cost, RunResult, Verdict
from nodevitals.checks.requests import cost as costs
from nodevitals.checks.requests.parameters import PresetLike, checked
from nodevitals.checks.requests.presets import PRESETS
from nodevitals.checks.requests.rounds import Plan
from nodevitals.checks.verdicts import figures
from nodevitals.checks.verdicts.reference import to_repeat
from nodevitals.checks.verdicts.verdict import judge as verdict_on
from nodevitals.errors import Wording
from nodevitals_hub.checks.check_requests import Member, RefusedError
from nodevitals_hub.checks.runners import PlannedRun
from nodevitals_hub.settings.hub import HubSettings

MAX_RUNS = 1_000_000


def presets_of(settings: HubSettings) -> dict[str, PresetLike]:
    """All presets by name; those of the site replace those that every hub has."""
    return {**PRESETS, **settings.presets}


def resolve(
    request: CheckRequest,
    members: Mapping[str, Member],
    settings: HubSettings,
    without: Collection[str] = (),
) -> CheckRequest:
    """The request with all defaults and all nodes but some. Raises RefusedError."""
    if without:
        left_out = set(without)
        members = {name: one for name, one in members.items() if name not in left_out}
        request = replace(request, nodes=tuple(n for n in request.nodes if n not in left_out))
    try:
        return checked(request, presets_of(settings), members.values())
    except CheckError as error:
        raise RefusedError("invalid", *error.problems) from None


def plan(request: CheckRequest) -> tuple[PlannedRun, ...]:
    """The runs of a resolved request, in the order in which they start; of a collective the one
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
    """The runs after the planned ones that a verdict on these results needs."""
    found = to_repeat(check.request, check.cost.runs, results)
    return tuple(PlannedRun(number=number, nodes=nodes) for number, nodes in found)


def cost(request: CheckRequest, settings: HubSettings) -> Cost:
    """What a resolved request costs at most. Raises RefusedError where that is over the limits."""
    found = costs.cost(request, settings.limits.pairs)
    most = settings.limits.node_hours
    if found.node_seconds > most * 3600 or found.runs > MAX_RUNS:
        text = Wording(
            "{runs} runs, {hours} node hours, over limits.node_hours ({most}): choose fewer nodes,"
            " rounds, sizes or iterations",
            runs=found.runs,
            hours=f"{found.node_seconds / 3600:.0f}",
            most=f"{most:g}",
        )
        raise RefusedError("invalid", text)
    return found


def figure(request: CheckRequest, results: Sequence[RunResult]) -> float | None:
    """The median of the results."""
    return figures.median_of(request, results)


def judge(check: Check, results: Sequence[RunResult], isolation: Verdict | None = None) -> Verdict:
    """The verdict on the results."""
    return verdict_on(check, results, check.baseline, isolation)
