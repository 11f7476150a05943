"""Compares the pairs of one series with each other, with an expected speed, and with the past.

In: the request of the series, its results. Out: findings and doubts on nodes, links and rails.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence
from typing import Optional

from nodevitals.checks.model import CheckRequest, RunResult
from nodevitals.checks.requests.devices import natural
from nodevitals.checks.requests.sizes import parse_sizes, spelled_size
from nodevitals.checks.verdicts import figures, outliers, reference
from nodevitals.checks.verdicts.findings import (
    Judgement,
    finding,
    percent,
    port_of,
    rail_of,
    some,
)
from nodevitals.probes.fabric.tools.report import LATENCY

MAX_SLOW_SHARE = 0.05
"""Where more of the pairs of nodes that are well are slow, the network is shared: no link is
named."""
MIN_SLOW_PAIRS = 4
EXPECTED = {"rate": "expected rate", "latency": "expected latency"}
MOST_NODES = 0.5
"""Where more of the nodes are slower than expected, it is the rail."""


def compare(
    request: CheckRequest,
    runs: Sequence[RunResult],
    baseline: Optional[float],
    judgement: Judgement,
) -> None:
    """Add the nodes and pairs that are slow with messages of the largest size."""
    test = request.test
    measured = _measured(request, runs, figures.largest(test))
    expected = reference.expected_speed(request)
    last = None if baseline is None else figures.speed_of(baseline, test)
    is_pair = len({name for pair in measured for name in (pair.sender, pair.receiver)}) == 2
    outlying = outliers.find(
        measured,
        request.share,
        expected or (last if is_pair else None),
        directed=test.operation not in LATENCY,
    )
    if outlying is None:
        return
    judgement.median, judgement.slow_below = outlying.median, request.share * outlying.usual
    usual = "last check" if last else "other direction"
    if expected:
        usual = EXPECTED["latency" if test.operation in LATENCY else "rate"]
    elif not is_pair:
        usual = "median"
    _add_slow_nodes(request, outlying, usual, judgement)
    _add_slow_pairs(request, outlying, usual, judgement)
    if not expected and not is_pair and last and outlying.usual < request.share * last:
        judgement.slow_below = request.share * last
        ratio = outlying.usual / last
        text = f"the median is {amount(request, ratio, 'last check')}"
        judgement.findings.append(finding(rail_of(request), "rail", "threshold", text, ratio))
    _note_smaller_sizes(request, runs, {node.name for node in outlying.nodes}, judgement)


def amount(request: CheckRequest, ratio: float, usual: str) -> str:
    """A slow speed for people: `41 % of the median`, of a latency `2.4 times the median`."""
    if request.test.operation in LATENCY:
        return f"{1 / ratio:.1f} times the {usual}"
    return f"{percent(ratio)} of the {usual}"


def _add_slow_nodes(
    request: CheckRequest, outlying: outliers.Found, usual: str, judgement: Judgement
) -> None:
    sizes = parse_sizes(request.test.sizes)
    at = f" with {spelled_size(sizes[-1])}" if len(sizes) > 1 else ""
    slow = outlying.nodes
    if usual in EXPECTED.values() and len(slow) > MOST_NODES * len(request.nodes):
        ratio = statistics.median(node.ratio for node in slow)
        who = f"{len(slow)} of {len(request.nodes)} nodes"
        if len(slow) < len(request.nodes):
            who += f" ({some([node.name for node in slow])})"
        text = f"{who}: {amount(request, ratio, usual)}{at}"
        judgement.findings.append(finding(rail_of(request), "rail", "threshold", text, ratio))
        return
    named = {known.subject for known in judgement.findings if known.scope == "node"}
    for node in slow:
        if node.name not in named:
            way = f", {node.direction}" if node.direction else ""
            suspects = (f"{port_of(request)}{way}",) if request.test.device else ()
            text = f"{amount(request, node.ratio, usual)}{at}{way}"
            judgement.findings.append(
                finding(node.name, "node", "threshold", text, node.ratio, suspects)
            )


def _measured(
    request: CheckRequest, runs: Iterable[RunResult], place: int
) -> list[outliers.Measured]:
    """The speeds of pairs; in a read, the target sends the data."""
    measured = []
    for run in runs:
        figure = figures.at_size(run, request.test, place)
        if figure is not None and len(run.nodes) == 2:
            sender, receiver = run.nodes
            if request.test.operation.startswith("read"):
                sender, receiver = receiver, sender
            speed = figures.speed_of(figure, request.test)
            measured.append(outliers.Measured(sender, receiver, speed))
    return measured


def _add_slow_pairs(
    request: CheckRequest, outlying: outliers.Found, usual: str, judgement: Judgement
) -> None:
    links: dict[frozenset[str], list[outliers.SlowPair]] = {}
    for pair in outlying.pairs:
        links.setdefault(frozenset((pair.sender, pair.receiver)), []).append(pair)
    count = len(outlying.pairs)
    if len(links) >= MIN_SLOW_PAIRS and count > MAX_SLOW_SHARE * outlying.well:
        text = f"{count} of {outlying.well} tests of nodes that are not slow themselves are slow"
        if usual in EXPECTED.values():
            judgement.findings.append(finding(rail_of(request), "rail", "threshold", text, None))
            return
        advice = "other traffic, or paths between groups: repeat it, with more rounds"
        judgement.doubts.append(("threshold", f"{text}: {advice}"))
        if outlying.unproven:
            judgement.doubts.append(
                ("threshold", f"slow by chance or not: {some(outlying.unproven)}")
            )
        return
    directed = request.test.operation not in LATENCY
    for pairs in links.values():
        worst = min(pairs, key=lambda pair: pair.ratio)
        way = f", from {worst.sender} to {worst.receiver}"
        text = amount(request, worst.ratio, usual) + (way if directed and len(pairs) == 1 else "")
        subject = " - ".join(sorted((worst.sender, worst.receiver), key=natural))
        judgement.findings.append(finding(subject, "link", "threshold", text, worst.ratio))


def _note_smaller_sizes(
    request: CheckRequest, runs: Sequence[RunResult], slow: set[str], judgement: Judgement
) -> None:
    """Add a note, not a finding, on nodes that are slow only with smaller messages."""
    sizes = parse_sizes(request.test.sizes)
    directed = request.test.operation not in LATENCY
    for place, size in enumerate(sizes[:-1]):
        measured = _measured(request, runs, place)
        slower = outliers.find(measured, request.share, None, directed)
        others = [node.name for node in slower.nodes if node.name not in slow] if slower else []
        if others:
            judgement.notes.append(f"slow with {spelled_size(size)} only: {some(others)}")
