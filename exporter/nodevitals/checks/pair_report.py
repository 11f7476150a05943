"""Prints the results of all pairs.

In: the results of pairs. Out: verdicts on nodes and pairs, a matrix, CSV.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence

import msgspec

from nodevitals.checks.model import CheckRequest, Reason, RunResult, TestRequest
from nodevitals.checks.ssh_pairs import Pair
from nodevitals.checks.sweep import spelled_size
from nodevitals.checks.verdicts import verdict_of
from nodevitals.probes.fabric.settings import TestSettings


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """A problem: `subject` is a node, or a pair as `a - b`."""

    subject: str
    problem: str
    reason: Reason
    """`hardware` and `threshold` are wrong; with the others, the test could not tell."""


def judge(
    pairs: Sequence[Pair], test: TestSettings, expected: float | None, share: float
) -> list[Verdict]:
    """The problems, as the hub finds them."""
    request = CheckRequest(
        kind="matrix",
        nodes=tuple(sorted({name for one in pairs for name in (one.source, one.target)})),
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
    results = [
        RunResult(number=number, nodes=(one.source, one.target), reports=(one.report,))
        for number, one in enumerate(pairs)
    ]
    verdict = verdict_of(request, len(pairs), results)
    found = [
        Verdict(
            subject=one.subject,
            problem=one.message if one.ratio is None else f"{one.ratio:.0%} of what is usual",
            reason=one.reason,
        )
        for one in verdict.findings
    ]
    if verdict.outcome == "unknown" and not found:
        reason = verdict.reason or "harness"
        found.append(Verdict(subject="all nodes", problem=verdict.message, reason=reason))
    return found


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


def cell(text: str) -> str:
    """Text that no spreadsheet takes for a formula."""
    return f"'{text}" if text[:1] in ("=", "+", "-", "@", "\t", "\r") else text


def as_csv(pairs: Sequence[Pair]) -> str:
    """One line per pair: bytes per second or seconds, or why there is no figure."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(("source", "target", "figure", "reason", "message"))
    for one in pairs:
        figure = "" if one.figure is None else f"{one.figure:.9g}"
        writer.writerow(
            (one.source, one.target, figure, one.report.reason or "", cell(one.report.message))
        )
    return text.getvalue()
