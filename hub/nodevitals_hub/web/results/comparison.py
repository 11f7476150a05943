"""Compares a check with an earlier one: the figures of each node and test, largest changes first.

In: two checks of the same kind and tool, with their results. Out: a bounded number of changes, for
any number of nodes. Pure. Raises RefusedError where nothing can be compared.
"""

from __future__ import annotations

import math
import statistics
from collections import defaultdict
from collections.abc import Iterable, Iterator
from heapq import nsmallest
from typing import NamedTuple

import msgspec

from nodevitals.checks.model import Check, CheckDetail, CheckRequest, RunResult
from nodevitals.checks.requests.runs import Series, request_of, results_of, series_of
from nodevitals.checks.verdicts import figures
from nodevitals.checks.verdicts.repetitions import merged
from nodevitals.errors import Wording
from nodevitals_hub.checks.check_requests import RefusedError

MAX_CHANGES = 100
_TEXT_CHARACTERS = 300


class Change(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A figure in both checks, or why there is none: bytes per second, or seconds of a latency."""

    nodes: tuple[str, ...]
    """A node, source and target of a pair, or the nodes of a collective."""
    operation: str = ""
    devices: str = ""
    message_bytes: int | None = None
    """The largest size of both checks; None where they have none in common, and each its own."""
    now: float | None = None
    earlier: float | None = None
    ratio: float | None = None
    """Speed now over the earlier one; below 1 is slower, also for latencies."""
    problem: str = ""
    earlier_problem: str = ""


class Comparison(msgspec.Struct, frozen=True, kw_only=True):
    """What has changed since an earlier check."""

    check: str
    earlier: str
    sizes: tuple[Change, ...] = ()
    """By message size, where both checks have several: the medians."""
    nodes: tuple[Change, ...] = ()
    """By node, of a matrix: the medians over the partners that it has in both checks."""
    tests: tuple[Change, ...] = ()
    """By pair, collective or node's own checks."""
    compared: int = 0
    """Number of tests that both checks have; each operation and device counts."""
    only_now: int = 0
    only_earlier: int = 0


class _Side(NamedTuple):
    """One check's part of a comparison: the request and the results of one series."""

    request: CheckRequest
    results: list[RunResult]


class _Found(NamedTuple):
    """The outcome of one test."""

    figure: float | None
    problem: str


def comparable(check: Check, other: Check) -> bool:
    """Whether some figures of two checks mean the same."""
    same = check.request.kind == other.request.kind
    same &= check.request.test.tool == other.request.test.tool
    return same and check.id != other.id and bool(_common(check, other))


def _common(check: Check, other: Check) -> list[tuple[Series, Series]]:
    """The series of both checks; a check of one device is compared with one of another device."""
    ours, theirs = series_of(check.request.test), series_of(other.request.test)
    if len(ours) == len(theirs) == 1:
        same = ours[0].operation == theirs[0].operation
        return [(ours[0], theirs[0])] if same else []
    named = {series.name: series for series in theirs}
    return [(series, named[series.name]) for series in ours if series.name in named]


def compare(detail: CheckDetail, earlier: CheckDetail) -> Comparison:
    """The changes since an earlier check. Raises RefusedError."""
    if not comparable(detail.check, earlier.check):
        text = Wording(
            "{name} is another kind of test: choose a check with the same kind, tool and operation",
            name=earlier.check.id,
        )
        raise RefusedError("invalid", text)
    is_matrix = detail.check.request.kind == "matrix"
    sizes: list[Change] = []
    nodes: list[Change] = []
    tests: list[Change] = []
    only_now = only_earlier = 0
    for ours, theirs in _common(detail.check, earlier.check):
        now, then = _side(detail, ours), _side(earlier, theirs)
        common = sorted(set(ours.sizes) & set(theirs.sizes))
        size = common[-1] if common else None
        named = Change(nodes=(), operation=ours.operation, devices=ours.devices, message_bytes=size)
        found, found_then = _found(now, ours, size), _found(then, theirs, size)
        own = [
            _change(named, key, found[key], found_then[key], now.request)
            for key in found.keys() & found_then.keys()
        ]
        only_now += len(found) - len(own)
        only_earlier += len(found_then) - len(own)
        sizes += _by_size(named, (now, ours), (then, theirs), common)
        nodes += _by_node(named, own, now.request) if is_matrix else ()
        tests += own
    return Comparison(
        check=detail.check.id,
        earlier=earlier.check.id,
        sizes=tuple(sizes[:MAX_CHANGES]),
        nodes=_largest(nodes),
        tests=_largest(tests),
        compared=len(tests),
        only_now=only_now,
        only_earlier=only_earlier,
    )


def _side(detail: CheckDetail, series: Series) -> _Side:
    request, results = detail.check.request, figures.in_order(detail.results)
    if not series.sizes:
        return _Side(request, results)
    if request.kind in ("pair", "matrix"):
        results, _ = merged(request, detail.check.cost.runs, results)
    return _Side(request_of(request, series), results_of(results, series))


def _found(side: _Side, series: Series, size: int | None) -> dict[tuple[str, ...], _Found]:
    """The outcome of each test by its nodes."""
    place = len(series.sizes) - 1 if size is None else series.sizes.index(size)
    found = {}
    for run in side.results:
        figure = figures.at_size(run, side.request.test, place) if series.sizes else None
        failure = figures.failure_of(run, side.request) if figure is None else None
        found[run.nodes] = _Found(figure, failure.text[:_TEXT_CHARACTERS] if failure else "")
    return found


def _change(
    named: Change, nodes: tuple[str, ...], now: _Found, then: _Found, request: CheckRequest
) -> Change:
    return msgspec.structs.replace(
        named,
        nodes=nodes,
        now=now.figure,
        earlier=then.figure,
        ratio=_ratio(now.figure, then.figure, request),
        problem=now.problem,
        earlier_problem=then.problem,
    )


def _ratio(now: float | None, then: float | None, request: CheckRequest) -> float | None:
    if now is None or then is None:
        return None
    return figures.speed_of(now, request.test) / figures.speed_of(then, request.test)


def _by_node(named: Change, changes: Iterable[Change], request: CheckRequest) -> Iterator[Change]:
    """The medians of each node over the pairs that have a figure in both checks."""
    values: dict[str, list[tuple[float, float]]] = defaultdict(list)
    for change in changes:
        if change.now is not None and change.earlier is not None:
            for name in change.nodes:
                values[name].append((change.now, change.earlier))
    for name, pairs in values.items():
        now, then = (_Found(statistics.median(column), "") for column in zip(*pairs))
        yield _change(named, (name,), now, then, request)


def _by_size(
    named: Change, now: tuple[_Side, Series], then: tuple[_Side, Series], sizes: list[int]
) -> Iterator[Change]:
    """The medians at each size of both checks, where there are several."""
    for size in sizes if len(sizes) > 1 else ():
        medians = [_median(side, series.sizes.index(size)) for side, series in (now, then)]
        if None not in medians:
            row = msgspec.structs.replace(named, message_bytes=size)
            found, found_then = (_Found(median, "") for median in medians)
            yield _change(row, (), found, found_then, now[0].request)


def _median(side: _Side, place: int) -> float | None:
    request = side.request
    known = [
        figure
        for run in side.results
        if (figure := figures.at_size(run, request.test, place)) is not None
        and (request.kind != "collective" or set(run.nodes) == set(request.nodes))
    ]
    return statistics.median(known) if known else None


def _largest(changes: list[Change]) -> tuple[Change, ...]:
    """Tests that fail in one of both checks, then the largest changes."""

    def key(change: Change) -> tuple[bool, float, tuple[str, ...]]:
        same = bool(change.problem) == bool(change.earlier_problem)
        return same, -abs(math.log(change.ratio)) if change.ratio else 0.0, change.nodes

    return tuple(nsmallest(MAX_CHANGES, changes, key=key))
