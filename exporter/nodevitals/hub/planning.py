"""What a request becomes: a resolved request, its cost, its runs, and the verdict on its results."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from itertools import combinations
from typing import Optional

from msgspec.structs import replace

from nodevitals.checks.model import CheckRequest, Cost, RunResult, Verdict
from nodevitals.hub.checks import Member, RefusedError
from nodevitals.hub.runners import PlannedRun
from nodevitals.hub.settings import HubSettings


def resolve(
    request: CheckRequest, members: Mapping[str, Member], settings: HubSettings
) -> CheckRequest:
    """The request with all nodes and defaults. Raises RefusedError."""
    unknown = [name for name in request.nodes if name not in members]
    if unknown:
        raise RefusedError("invalid", f"nodes: {unknown[0]} is on no list of the hub")
    chosen = set(request.nodes)
    if request.where:
        chosen |= {
            name
            for name, member in members.items()
            if request.where.items() <= member.labels.items()
        }
    if len(chosen) < (1 if request.kind == "node" else 2):
        raise RefusedError("invalid", "nodes: too few; name two, or labels with `where`")
    if request.preset and request.preset not in settings.presets:
        raise RefusedError("invalid", f"preset: no preset {request.preset!r}")
    return replace(request, nodes=tuple(sorted(chosen)))


def plan(request: CheckRequest) -> tuple[PlannedRun, ...]:
    """The runs of a resolved request, in the order in which they start."""
    if request.kind == "node":
        chosen: Sequence[tuple[str, ...]] = [(name,) for name in request.nodes]
    elif request.kind == "collective":
        chosen = [request.nodes]
    else:
        chosen = list(combinations(request.nodes, 2))
    return tuple(PlannedRun(number=number, nodes=nodes) for number, nodes in enumerate(chosen))


def cost(request: CheckRequest) -> Cost:
    """What a resolved request costs at most."""
    runs = plan(request)
    seconds = float(request.test.seconds or 10)
    return Cost(
        nodes=len(request.nodes),
        runs=len(runs),
        node_seconds=seconds * sum(len(run.nodes) for run in runs),
        seconds=seconds * len(runs),
        bytes=0.0,
    )


def figure(results: Sequence[RunResult]) -> Optional[float]:
    """The median of the results."""
    rates = [
        row.bandwidth_bytes_per_second
        for result in results
        for report in result.reports[-1:]
        for row in report.rows[-1:]
        if row.bandwidth_bytes_per_second is not None
    ]
    return statistics.median(rates) if rates else None


def judge(request: CheckRequest, results: Sequence[RunResult]) -> Verdict:
    """The verdict on the results."""
    missing = [one for one in results if one.skipped]
    if missing or not results:
        return Verdict(outcome="unknown", reason="harness", message=f"{len(missing)} runs skipped")
    return Verdict(outcome="ok", message=f"{len(results)} runs of {request.kind} are ok")
