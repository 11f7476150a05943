"""Prints the results of all pairs.

In: the results of pairs. Out: which of them to repeat, verdicts on nodes and pairs, a matrix, CSV.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from typing import NamedTuple, Optional

import msgspec

from nodevitals.checks.model import CheckRequest, Outcome, Reason, RunResult, TestRequest
from nodevitals.checks.requests.sizes import spelled_size
from nodevitals.checks.ssh.pairs import Pair
from nodevitals.checks.verdicts import reference
from nodevitals.checks.verdicts.verdict import verdict_of
from nodevitals.probes.fabric.settings import TestSettings


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """A problem: `subject` is a node, or a pair as `a - b`."""

    subject: str
    problem: str
    reason: Reason
    """As in the hub's verdicts."""


class Judged(NamedTuple):
    """The outcome of a test, and its problems."""

    outcome: Outcome
    reason: Optional[Reason]
    problems: list[Verdict]


def to_repeat(
    pairs: Sequence[Pair], test: TestSettings, expected: float | None
) -> set[tuple[str, ...]]:
    """The pairs to test a second time before a verdict."""
    results, planned = _results(pairs)
    repeated = reference.to_repeat(_request(pairs, test, expected), planned, results)
    return {nodes for _, nodes in repeated}


def judge(
    pairs: Sequence[Pair], test: TestSettings, expected: float | None, share: float
) -> Judged:
    """The verdict, equal to the hub's. A pair that occurs a second time was repeated."""
    results, planned = _results(pairs)
    verdict = verdict_of(_request(pairs, test, expected, share), planned, results)
    problems = [
        Verdict(
            subject=finding.subject,
            problem=finding.message
            if finding.ratio is None
            else f"{finding.ratio:.0%} of what is usual",
            reason=finding.reason,
        )
        for finding in verdict.findings
    ]
    if verdict.outcome == "unknown" and not problems:
        reason = verdict.reason or "harness"
        problems.append(Verdict(subject="all nodes", problem=verdict.message, reason=reason))
    return Judged(verdict.outcome, verdict.reason, problems)


def _request(
    pairs: Sequence[Pair], test: TestSettings, expected: float | None, share: float = 1.0
) -> CheckRequest:
    return CheckRequest(
        kind="matrix",
        nodes=tuple(sorted({name for pair in pairs for name in (pair.source, pair.target)})),
        test=TestRequest(
            tool=test.tool,
            operation=test.operation,
            device=test.device,
            port=test.ib_port,
            sizes=spelled_size(test.message_bytes),
        ),
        expected_bytes_per_second=expected,
        share=share,
    )


def _results(pairs: Sequence[Pair]) -> tuple[list[RunResult], int]:
    """The results and the number of planned ones; repetitions have the numbers after those."""
    numbers = {nodes: n for n, nodes in enumerate(dict.fromkeys(map(_nodes, pairs)))}
    planned = len(numbers)
    results = []
    for place, pair in enumerate(pairs):
        number = numbers[_nodes(pair)]
        results.append(
            RunResult(
                number=number if place < planned else planned + number,
                nodes=_nodes(pair),
                reports=(pair.report,),
                port_bytes_per_second=pair.port_bytes_per_second,
            )
        )
    return results, planned


def _nodes(pair: Pair) -> tuple[str, str]:
    return (pair.source, pair.target)


def matrix(pairs: Sequence[Pair], test: TestSettings) -> list[list[str]]:
    """The rows of a table, the head first; its cells are Gb/s, microseconds, or reasons."""
    names = sorted({name for pair in pairs for name in (pair.source, pair.target)})
    cells = {frozenset((pair.source, pair.target)): _cell(pair, test) for pair in pairs}
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


def cell(text: str) -> str:
    """The text in a form that no spreadsheet reads as a formula."""
    return f"'{text}" if text[:1] in ("=", "+", "-", "@", "\t", "\r") else text


def as_csv(pairs: Sequence[Pair]) -> str:
    """One line per pair: bytes per second or seconds, or why there is no figure."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(("source", "target", "figure", "reason", "message"))
    for pair in pairs:
        figure = "" if pair.figure is None else f"{pair.figure:.9g}"
        writer.writerow(
            (pair.source, pair.target, figure, pair.report.reason or "", cell(pair.report.message))
        )
    return text.getvalue()
