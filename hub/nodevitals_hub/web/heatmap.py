"""The results of a check as its page shows them.

In: a check with its results. Out: a bounded number of rows, for any number of nodes.
"""

from __future__ import annotations

import asyncio
import statistics
from collections.abc import Mapping, Sequence
from itertools import islice
from types import MappingProxyType
from typing import NamedTuple

from nodevitals.checks.model import Check, CheckDetail, CheckRequest, RunResult
from nodevitals.checks.requests.runs import request_of, results_of, series_of
from nodevitals.checks.requests.sizes import parse_sizes
from nodevitals.checks.verdicts import figures, repetitions
from nodevitals_hub.checks.coordinator import Coordinator
from nodevitals_hub.web.results.maps import Maps, maps_of
from nodevitals_hub.web.results.runs import RunRow, commands_of_first, run_row, slowest

MAX_ROWS = 100
MAX_VERSIONS = 20
VERSIONED_RUNS = 100
"""Number of runs whose versions are shown."""


class SizeRow(NamedTuple):
    """The median at a size; `width` in percent of the largest."""

    size: int
    figure: float
    width: int


class Spent(NamedTuple):
    """The cost of the check so far."""

    runs: int = 0
    node_seconds: float = 0.0


class Overview(NamedTuple):
    """The results as a page shows them."""

    of_pairs: Maps = Maps()
    all_nodes: int = 0
    sizes: tuple[SizeRow, ...] = ()
    runs: tuple[RunRow, ...] = ()
    commands: tuple[tuple[RunRow, str], ...] = ()
    """Command lines of the slowest or failed tests."""
    spent: Spent = Spent()
    versions: Mapping[str, str] = MappingProxyType({})


def overview(detail: CheckDetail) -> Overview:
    """Count and compare the results."""
    request, results = detail.check.request, figures.in_order(detail.results)
    whole = Overview(spent=_spent(results), versions=_versions(results))
    if request.kind == "node":
        rows = [run_row(run, detail) for run in results]
        rows.sort(key=lambda row: (not row.problem, row.nodes))
        return whole._replace(runs=tuple(rows[:MAX_ROWS]))
    # As the verdict: of repeated tests the better figure.
    runs, _ = repetitions.merged(request, detail.check.cost.runs, results)
    first = series_of(request.test)[0]
    own = request_of(request, first)
    found = slowest(runs, request, MAX_ROWS)
    return whole._replace(
        of_pairs=maps_of(detail, runs) if request.kind == "matrix" else Maps(),
        all_nodes=len(request.nodes),
        sizes=_by_size(own, results_of(runs, first)),
        runs=tuple(run_row(run, detail, series) for run, series in found),
        commands=commands_of_first(found, detail),
    )


def _spent(results: Sequence[RunResult]) -> Spent:
    return Spent(
        sum(not run.skipped for run in results),
        sum(run.seconds * len(run.nodes) for run in results),
    )


def _versions(results: Sequence[RunResult]) -> dict[str, str]:
    versions: dict[str, str] = {}
    for run in results[:VERSIONED_RUNS]:
        versions.update(run.versions)
    return dict(islice(versions.items(), MAX_VERSIONS))


def _by_size(request: CheckRequest, results: list[RunResult]) -> tuple[SizeRow, ...]:
    test = request.test
    medians = []
    sizes = parse_sizes(test.sizes)
    for place, size in enumerate(sizes if len(sizes) > 1 else ()):
        values = [figures.at_size(run, test, place) for run in results]
        known = [value for value in values if value is not None]
        if known:
            medians.append((size, statistics.median(known)))
    if len(medians) < 2:
        return ()
    most = max(value for _, value in medians)
    return tuple(SizeRow(size, value, round(100 * value / most)) for size, value in medians)


MOST = 32


class Overviews:
    """Up to MOST overviews."""

    def __init__(self, checks: Coordinator) -> None:
        self._checks = checks
        self._known: dict[str, tuple[tuple[str, int], Overview]] = {}

    async def of(self, check: Check) -> Overview:
        """The overview of a check. Raises RefusedError."""
        state, known = (check.phase, check.runs_done), self._known.pop(check.id, None)
        if known is None or known[0] != state:
            detail = await self._checks.get(check.id)
            known = (state, await asyncio.to_thread(overview, detail))
        self._known[check.id] = known
        while len(self._known) > MOST:
            del self._known[next(iter(self._known))]
        return known[1]
