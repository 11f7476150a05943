"""The bus bandwidth of a collective over the sizes of its messages, as a curve beside the expected.

In: a check with its results, also one that runs. Out: figures, and coordinates for an SVG.
"""

from __future__ import annotations

import math
from typing import NamedTuple

from nodevitals.checks.model import CheckDetail, RunResult
from nodevitals.checks.requests.sizes import parse_sizes
from nodevitals.checks.verdicts import figures
from nodevitals.checks.verdicts.collectives import expected_of

WIDTH, HEIGHT = 640, 240
LEFT, RIGHT, TOP, BOTTOM = 84, 32, 12, 28
"""Margins for the labels of the axes."""
MOST_LABELS = 8


class Point(NamedTuple):
    """A size, its bus bandwidth, and the share of the expected one in percent."""

    size: int
    figure: float
    percent: int | None
    x: float
    y: float


class Line(NamedTuple):
    """A line of the grid: its place, and the value that it is labelled with."""

    place: float
    value: float


class Curve(NamedTuple):
    """What a page shows of a collective."""

    points: tuple[Point, ...]
    all_sizes: int
    """Number of sizes that the check measures."""
    expected: float | None
    """Bus bandwidth of a healthy collective, as far as it is known."""
    basis: str
    """What that comes from; '' where the request or an earlier check gave it."""
    expected_y: float | None
    rates: tuple[Line, ...]
    sizes: tuple[Line, ...]

    @property
    def path(self) -> str:
        """The points as the path of an SVG."""
        return "M" + " L".join(f"{point.x:.1f} {point.y:.1f}" for point in self.points)


def curve_of(detail: CheckDetail) -> Curve | None:
    """The curve of the run over all nodes; None before its first size."""
    check, test = detail.check, detail.check.request.test
    whole = figures.of_all_nodes(check.request, detail.results)
    sizes = parse_sizes(test.sizes)
    measured = _measured(whole[0], detail, sizes) if whole else []
    if not measured:
        return None
    expected, basis = expected_of(check)
    top = 1.05 * max([figure for _, figure in measured] + ([expected] if expected else []))
    axis = _Axis(sizes[0], sizes[-1], top)
    points = [
        Point(
            size,
            figure,
            round(100 * figure / expected) if expected else None,
            axis.x(size),
            axis.y(figure),
        )
        for size, figure in measured
    ]
    step = -(-len(sizes) // MOST_LABELS)
    return Curve(
        points=tuple(points),
        all_sizes=len(sizes),
        expected=expected,
        basis=basis,
        expected_y=axis.y(expected) if expected else None,
        rates=tuple(Line(axis.y(top * part), top * part) for part in (0.0, 0.25, 0.5, 0.75, 1.0)),
        sizes=tuple(Line(axis.x(size), size) for size in sizes[::step]),
    )


def _measured(
    run: RunResult, detail: CheckDetail, sizes: tuple[int, ...]
) -> list[tuple[int, float]]:
    figures_of_sizes = (
        (size, figures.at_size(run, detail.check.request.test, place))
        for place, size in enumerate(sizes)
    )
    return [(size, figure) for size, figure in figures_of_sizes if figure is not None]


class _Axis:
    """Coordinates: sizes by their logarithm, rates from 0 to `top`."""

    def __init__(self, first: int, last: int, top: float) -> None:
        self._first = math.log2(first)
        self._span = math.log2(last) - self._first
        self._top = top

    def x(self, size: float) -> float:
        """A place from left to right; in the middle where there is one size only."""
        share = (math.log2(size) - self._first) / self._span if self._span else 0.5
        return LEFT + share * (WIDTH - LEFT - RIGHT)

    def y(self, rate: float) -> float:
        """A place from the top down."""
        return HEIGHT - BOTTOM - rate / self._top * (HEIGHT - TOP - BOTTOM)
