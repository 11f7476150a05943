"""The pairs of a check as heat maps, one per operation and device, and their nodes by the median.

In: a check of pairs with its results. Out: a bounded number of rows and cells, for any number of
nodes and devices.
"""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Sequence
from heapq import nsmallest
from itertools import takewhile
from typing import NamedTuple

from nodevitals.checks.model import CheckDetail, CheckRequest, RunResult
from nodevitals.checks.requests.devices import natural
from nodevitals.checks.requests.runs import Series, request_of, results_of, series_of
from nodevitals.checks.verdicts import figures, outliers, reference
from nodevitals.probes.fabric.tools.report import LATENCY

MAX_MATRIX_NODES = 64
MAX_CELLS = 20_000
"""Of all maps of a check together; devices beyond are in the table of nodes."""
MAX_WORST = 20
MAX_COLUMNS = 16
LABEL_CHARACTERS = 20
ALL_NUMBERS = 16
"""Up to this number of nodes all cells of the map have a number; above, only slow pairs."""
TONES = (30, 50, 70, 80, 90)


class Cell(NamedTuple):
    """A figure, and its share of the usual speed in percent; None where it was not measured."""

    figure: float | None
    percent: int | None
    tone: str


class Map(NamedTuple):
    """The pairs of one operation and device: rows are sources, columns targets."""

    name: str
    latency: bool
    usual: float
    """The figure that is 100 %: expected, or the median of the pairs that are not slow."""
    rows: tuple[tuple[Cell, ...], ...] = ()


class NodeRow(NamedTuple):
    """A node's medians over its partners, for each operation and device."""

    name: str
    cells: tuple[Cell, ...]


class Maps(NamedTuple):
    """The maps of a check, and its slowest nodes."""

    names: tuple[str, ...] = ()
    labels: tuple[str, ...] = ()
    """The names in the maps: shorter, in the same order."""
    maps: tuple[Map, ...] = ()
    """One per operation and device; without rows where there are too many."""
    nodes: tuple[NodeRow, ...] = ()
    """The slowest first."""

    @property
    def numbers(self) -> bool:
        """Whether cells of pairs that are not slow have numbers."""
        return len(self.names) <= ALL_NUMBERS


class _Measured(NamedTuple):
    """The speeds of one series."""

    series: Series
    request: CheckRequest
    speeds: dict[tuple[str, str], float]
    usual: float


def maps_of(detail: CheckDetail, runs: Sequence[RunResult]) -> Maps:
    """The maps of the planned runs of a check of pairs."""
    request = detail.check.request
    found = [
        measured
        for series in series_of(request.test)
        if (measured := _measured(request_of(request, series), series, runs)) is not None
    ]
    if not found:
        return Maps()
    names = tuple(sorted(request.nodes, key=natural))
    shown = MAX_CELLS // len(names) ** 2 if len(names) <= MAX_MATRIX_NODES else 0
    return Maps(
        names=names,
        labels=labels_of(names),
        maps=tuple(_map(each, names if place < shown else ()) for place, each in enumerate(found)),
        nodes=_by_node(found[:MAX_COLUMNS]),
    )


def _measured(request: CheckRequest, series: Series, runs: Sequence[RunResult]) -> _Measured | None:
    place = figures.largest(request.test)
    speeds = {
        (run.nodes[0], run.nodes[-1]): figures.speed_of(value, request.test)
        for run in results_of(runs, series)
        if (value := figures.at_size(run, request.test, place)) is not None
    }
    pairs = [outliers.Measured(a, b, speed) for (a, b), speed in speeds.items()]
    expected = reference.expected_speed(request)
    directed = request.test.operation not in LATENCY
    judged = outliers.find(pairs, request.share, expected, directed)
    return None if judged is None else _Measured(series, request, speeds, judged.usual)


def _map(found: _Measured, names: Sequence[str]) -> Map:
    def cell(pair: tuple[str, str]) -> Cell:
        return cell_of(found.speeds.get(pair), found.usual, found.request)

    return Map(
        name=found.series.name,
        latency=found.series.operation in LATENCY,
        usual=figures.speed_of(found.usual, found.request.test),
        rows=tuple(tuple(cell((a, b)) for b in names) for a in names),
    )


def cell_of(speed: float | None, usual: float, request: CheckRequest) -> Cell:
    """A speed as a cell."""
    if speed is None:
        return Cell(None, None, "t")
    percent = round(100 * speed / usual)
    return Cell(figures.speed_of(speed, request.test), percent, tone_of(percent))


def tone_of(percent: int) -> str:
    """The class of a cell: t0 is the slowest, t5 usual."""
    return f"t{sum(percent >= bound for bound in TONES)}"


def _by_node(found: Sequence[_Measured]) -> tuple[NodeRow, ...]:
    """The nodes by their slowest median."""
    columns = [_medians(each) for each in found]
    worst: dict[str, float] = {}
    for each, column in zip(found, columns):
        for name, speed in column.items():
            worst[name] = min(worst.get(name, float("inf")), speed / each.usual)
    # gpu-2 before gpu-10; cheaper than a natural sort of 10,000 names.
    names = nsmallest(MAX_WORST, worst, key=lambda name: (worst[name], len(name), name))
    return tuple(
        NodeRow(
            name,
            tuple(
                cell_of(column.get(name), each.usual, each.request)
                for each, column in zip(found, columns)
            ),
        )
        for name in names
    )


def _medians(found: _Measured) -> dict[str, float]:
    by_node: dict[str, list[float]] = defaultdict(list)
    for pair, speed in found.speeds.items():
        for name in pair:
            by_node[name].append(speed)
    return {name: statistics.median(values) for name, values in by_node.items()}


def labels_of(names: Sequence[str]) -> tuple[str, ...]:
    """The names; long ones without their common domain, and cut at the start."""
    ends = [name.split(".")[::-1] for name in names if len(name) > LABEL_CHARACTERS]
    same = takewhile(lambda column: len(set(column)) == 1, zip(*ends)) if len(ends) > 1 else ()
    domain = "".join(f".{column[0]}" for column in reversed(tuple(same)))
    own = [name.removesuffix(domain) for name in names]
    most = LABEL_CHARACTERS - 1
    return tuple(name if len(name) <= LABEL_CHARACTERS else f"\u2026{name[-most:]}" for name in own)
