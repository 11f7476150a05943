"""Judges the results of all pairs, and prints them.

In: the results of pairs. Out: verdicts on nodes and pairs, a matrix, CSV.
"""

from __future__ import annotations

import csv
import io
import statistics
from collections.abc import Sequence

import msgspec

from nodevitals.checks.ssh_pairs import Pair
from nodevitals.probes.fabric.report import Report
from nodevitals.probes.fabric.settings import TestSettings

MIN_PARTNERS = 3


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """A problem: `subject` is a node, or a pair as `a - b`."""

    subject: str
    problem: str


def judge(
    pairs: Sequence[Pair], test: TestSettings, expected: float | None, share: float
) -> list[Verdict]:
    """The problems: pairs without a figure, nodes that are slow with most partners, and slow pairs
    of other nodes.

    Slow is below `share` of the expected rate, or of the median; for latencies, above its inverse.
    """
    found = [
        Verdict(subject=f"{one.source} - {one.target}", problem=_reason(one.report))
        for one in pairs
        if one.figure is None
    ]
    figures = {(one.source, one.target): one.figure for one in pairs if one.figure is not None}
    if not figures:
        return found
    nodes = sorted({name for pair in figures for name in pair})
    own = {node: [value for pair, value in figures.items() if node in pair] for node in nodes}
    medians = {node: statistics.median(values) for node, values in own.items()}
    # The median of nodes, not of pairs: one bad node of four is in half of all pairs.
    usual = expected or statistics.median(medians.values())

    def ratio(figure: float) -> float:
        over, under = (usual, figure) if test.is_latency else (figure, usual)
        return over / under if under else 1.0

    slow = {
        node: ratio(median)
        for node, median in medians.items()
        if len(own[node]) >= MIN_PARTNERS and ratio(median) < share
    }
    for node, value in slow.items():
        found.append(Verdict(subject=node, problem=f"{value:.0%} of what is usual"))
    for pair, figure in figures.items():
        if ratio(figure) < share and not slow.keys() & set(pair):
            text = f"{ratio(figure):.0%} of what is usual"
            found.append(Verdict(subject=f"{pair[0]} - {pair[1]}", problem=text))
    return found


def _reason(report: Report) -> str:
    return f"{report.reason}: {report.message}" if report.message else str(report.reason)


def matrix(pairs: Sequence[Pair], test: TestSettings) -> list[list[str]]:
    """Rows of a table, the head first, of figures in Gb/s or microseconds, or of reasons."""
    names = sorted({name for one in pairs for name in (one.source, one.target)})
    cells = {frozenset((one.source, one.target)): _cell(one, test) for one in pairs}
    unit = "us" if test.is_latency else "Gb/s"
    rows = [[unit, *names]]
    for row in names:
        line = [
            cells.get(frozenset((row, column)), "") if row != column else "-" for column in names
        ]
        rows.append([row, *line])
    return rows


def _cell(pair: Pair, test: TestSettings) -> str:
    if pair.figure is None:
        return str(pair.report.reason)
    return f"{pair.figure * 1e6:.2f}" if test.is_latency else f"{pair.figure * 8 / 1e9:.2f}"


def as_csv(pairs: Sequence[Pair]) -> str:
    """One line per pair: bytes per second or seconds, or why there is no figure."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(("source", "target", "figure", "reason", "message"))
    for one in pairs:
        figure = "" if one.figure is None else f"{one.figure:.9g}"
        writer.writerow(
            (one.source, one.target, figure, one.report.reason or "", one.report.message)
        )
    return text.getvalue()
