"""Results of pairs as a matrix, by node and by size, for a page.

In: a check with its results. Out: a bounded number of rows, for any number of nodes.
"""

from __future__ import annotations

import asyncio
import re
import statistics
from collections import defaultdict
from collections.abc import Mapping, Sequence
from heapq import nsmallest
from itertools import islice, takewhile
from types import MappingProxyType
from typing import NamedTuple

from nodevitals.checks.model import Check, CheckDetail, RunResult
from nodevitals.checks.requests.sizes import parse_sizes
from nodevitals.checks.verdicts import figures, outliers
from nodevitals_hub.checks.coordinator import Coordinator
from nodevitals_hub.web.results.runs import RunRow, commands_of_first, run_row

MAX_MATRIX_NODES = 64
MAX_ROWS = 100
MAX_VERSIONS = 20
VERSIONED_RUNS = 100
"""Number of runs whose versions are shown."""
MAX_WORST = 20
LABEL_CHARACTERS = 20
ALL_NUMBERS = 16
"""Up to this number of nodes all cells of the map have a number; above, only slow pairs."""
TONES = (30, 50, 70, 80, 90)
_DIGITS = re.compile(r"([0-9]{1,9})")


class Cell(NamedTuple):
    """A pair's share of the median in percent; None where it was not measured."""

    percent: int | None
    tone: str


class NodeRow(NamedTuple):
    """A node's median, and its share of the median of all in percent."""

    name: str
    figure: float
    percent: int
    tone: str


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

    names: tuple[str, ...] = ()
    labels: tuple[str, ...] = ()
    """The names in the map: shorter, in the same order."""
    rows: tuple[tuple[Cell, ...], ...] = ()
    mirrored: bool = False
    """Whether each pair was measured in one direction, and is shown in both of its cells."""
    numbers: bool = True
    """Whether cells of pairs that are not slow have numbers."""
    nodes: tuple[NodeRow, ...] = ()
    all_nodes: int = 0
    sizes: tuple[SizeRow, ...] = ()
    runs: tuple[RunRow, ...] = ()
    commands: tuple[tuple[RunRow, str], ...] = ()
    """Command lines of the slowest or failed tests."""
    median: float | None = None
    usual: float | None = None
    """The figure that is 100 %: expected, or the median of the pairs that are not slow."""
    spent: Spent = Spent()
    versions: Mapping[str, str] = MappingProxyType({})


def natural(name: str) -> list[tuple[int, int, str]]:
    """A key that sorts gpu-2 before gpu-10."""
    parts = _DIGITS.split(name)
    return [(0, int(part), "") if place % 2 else (1, 0, part) for place, part in enumerate(parts)]


def labels_of(names: Sequence[str]) -> tuple[str, ...]:
    """The names; long ones without their common domain, and cut at the start."""
    ends = [name.split(".")[::-1] for name in names if len(name) > LABEL_CHARACTERS]
    same = takewhile(lambda column: len(set(column)) == 1, zip(*ends)) if len(ends) > 1 else ()
    domain = "".join(f".{column[0]}" for column in reversed(tuple(same)))
    own = [name.removesuffix(domain) for name in names]
    most = LABEL_CHARACTERS - 1
    return tuple(name if len(name) <= LABEL_CHARACTERS else f"\u2026{name[-most:]}" for name in own)


def tone_of(percent: int | None) -> str:
    """The class of a cell: t0 is the slowest, t5 usual."""
    if percent is None:
        return "t"
    return f"t{sum(percent >= bound for bound in TONES)}"


def overview(detail: CheckDetail) -> Overview:
    """Count and compare the results."""
    request, results = detail.check.request, figures.in_order(detail.results)
    whole = Overview(spent=_spent(results), versions=_versions(results))
    if request.kind == "node":
        rows = [run_row(run, detail) for run in results]
        rows.sort(key=lambda row: (not row.problem, row.nodes))
        return whole._replace(runs=tuple(rows[:MAX_ROWS]))
    test = request.test
    place = figures.largest(test)
    measured = [(run, figures.at_size(run, test, place)) for run in results]
    ordered = sorted(measured, key=lambda x: -1.0 if x[1] is None else figures.speed_of(x[1], test))
    known = [value for _, value in measured if value is not None]
    whole = whole._replace(
        all_nodes=len(request.nodes),
        sizes=_by_size(detail, results),
        runs=tuple(run_row(run, detail) for run, _ in ordered[:MAX_ROWS]),
        commands=commands_of_first([run for run, _ in ordered[:MAX_ROWS]], detail),
        median=statistics.median(known) if known else None,
    )
    return _with_map(whole, detail, measured) if request.kind == "matrix" and known else whole


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


def _with_map(
    whole: Overview, detail: CheckDetail, measured: list[tuple[RunResult, float | None]]
) -> Overview:
    """The overview with the slowest nodes, and with the matrix if it is small."""
    request = detail.check.request
    speeds = {
        (run.nodes[0], run.nodes[-1]): figures.speed_of(value, request.test)
        for run, value in measured
        if value is not None
    }
    pairs = [outliers.Measured(a, b, speed) for (a, b), speed in speeds.items()]
    judged = outliers.find(pairs, request.share, request.expected_bytes_per_second)
    usual = judged.usual if judged else None
    whole = whole._replace(
        nodes=_by_node(detail, speeds, usual),
        usual=figures.speed_of(usual, request.test) if usual else None,
    )
    if len(request.nodes) > MAX_MATRIX_NODES:
        return whole
    once = not any((b, a) in speeds for a, b in speeds)
    both = {**speeds, **{(b, a): speed for (a, b), speed in speeds.items()}} if once else speeds
    names = tuple(sorted(request.nodes, key=natural))
    return whole._replace(
        names=names,
        labels=labels_of(names),
        rows=tuple(tuple(_cell(both.get((a, b)), usual) for b in names) for a in names),
        mirrored=once,
        numbers=len(names) <= ALL_NUMBERS,
    )


def _cell(speed: float | None, usual: float | None) -> Cell:
    percent = None if speed is None or not usual else round(100 * speed / usual)
    return Cell(percent, tone_of(percent))


def _by_node(
    detail: CheckDetail, speeds: dict[tuple[str, str], float], usual: float | None
) -> tuple[NodeRow, ...]:
    by_node: dict[str, list[float]] = defaultdict(list)
    for pair, speed in speeds.items():
        for name in pair:
            by_node[name].append(speed)
    middles = ((statistics.median(values), name) for name, values in by_node.items())
    # gpu-2 before gpu-10; cheaper than a natural sort of 10,000 names.
    worst = nsmallest(MAX_WORST, middles, key=lambda entry: (entry[0], len(entry[1]), entry[1]))
    return tuple(_node_row(name, middle, usual, detail) for middle, name in worst)


def _node_row(name: str, middle: float, usual: float | None, detail: CheckDetail) -> NodeRow:
    percent = round(100 * middle / usual) if usual else 0
    figure = figures.speed_of(middle, detail.check.request.test)  # its own inverse
    return NodeRow(name, figure, percent, tone_of(percent))


def _by_size(detail: CheckDetail, results: list[RunResult]) -> tuple[SizeRow, ...]:
    test = detail.check.request.test
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
