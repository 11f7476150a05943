"""`nodevitals fabric check`: every pair of some nodes once, started by a person.

In: nodes that ssh reaches, one test. Out: a figure or a reason for each pair, a matrix, a verdict
by node. The pairs come from the same plan as the agents'; a round's pairs run at once.
"""

from __future__ import annotations

import csv
import io
import itertools
import statistics
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import msgspec

from nodevitals.commands.fabric import remote
from nodevitals.probes.fabric import kind
from nodevitals.probes.fabric.plan import Meeting, Roster, rounds
from nodevitals.probes.fabric.report import Report, failed
from nodevitals.probes.fabric.settings import TestSettings

TRIES = 10
TRY_SECONDS = 0.3
FIRST_PORT, LAST_PORT = 18700, 18799
ENOUGH_PARTNERS = 3


class Pair(msgspec.Struct, frozen=True, kw_only=True):
    """What came of one pair."""

    source: str
    target: str
    report: Report

    @property
    def figure(self) -> float | None:
        """Bytes a second, or seconds (median) of a latency test."""
        if self.report.outcome != "ok":
            return None
        row = self.report.rows[0]
        latency = row.latency_seconds
        return latency["median"] if latency else row.bandwidth_bytes_per_second


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """What is wrong: `subject` is a node, or `a - b`."""

    subject: str
    problem: str


def run(
    nodes: Sequence[str],
    test: TestSettings,
    gids: Mapping[str, int | None],
    progress: Callable[[int, int], None],
) -> list[Pair]:
    """Test every pair once; `progress` hears of done and all."""
    roster = Roster((node, "") for node in nodes)
    turns = [list(roster.meetings(number)) for number in range(rounds(len(nodes)))]
    total = sum(map(len, turns))
    pairs: list[Pair] = []
    # Another port each time: what is left of one test must not take another's client.
    ports = itertools.cycle(range(FIRST_PORT, LAST_PORT + 1))
    with ThreadPoolExecutor(max_workers=max(1, len(nodes) // 2)) as threads:
        for meetings in turns:
            jobs = [threads.submit(_measure, one, test, gids, next(ports)) for one in meetings]
            for job in jobs:
                pairs.append(job.result())
                progress(len(pairs), total)
    return pairs


def _measure(
    meeting: Meeting, test: TestSettings, gids: Mapping[str, int | None], port: int
) -> Pair:
    report = _tested(meeting, test, gids, port)
    return Pair(source=meeting.source, target=meeting.target, report=report)


def _tested(
    meeting: Meeting, test: TestSettings, gids: Mapping[str, int | None], port: int
) -> Report:
    """Server there, client here; the client tries again while nobody listens yet."""
    argv = kind.argv(test, gids[meeting.target], port)
    server = subprocess.Popen(
        remote.command(meeting.target, argv, test.timeout + TRIES * TRY_SECONDS),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
    try:
        client = kind.argv(test, gids[meeting.source], port, meeting.target)
        for _ in range(TRIES):
            time.sleep(TRY_SECONDS)
            done = remote.run(meeting.source, client, test.timeout)
            report = _judged(test, done)
            if report.reason != "unreachable" or server.poll() is not None:
                break
        if report.outcome != "ok" and server.poll() not in (None, 0):
            report = _servers_word(test, server, report)
        return report
    finally:
        server.kill()
        with suppress(subprocess.TimeoutExpired):
            server.communicate(timeout=5)


def _judged(test: TestSettings, done: remote.Done) -> Report:
    if done.status in (124, 137, -1):
        return failed("timeout", f"no result in {test.timeout:g} s")
    if done.status in (126, 127):
        return failed("tool_missing", done.text.strip())
    return kind.judge(test, done.text, done.status)


def _servers_word(test: TestSettings, server: subprocess.Popen[bytes], report: Report) -> Report:
    """The server's side knows better why, where it ended by itself."""
    with suppress(subprocess.TimeoutExpired):
        text = server.communicate(timeout=5)[0].decode(errors="replace")
        said = _judged(test, remote.Done(text, server.returncode))
        return report if said.reason in (None, "harness", "timeout") else said
    return report


def judge(
    pairs: Sequence[Pair], test: TestSettings, expected: float | None, share: float
) -> list[Verdict]:
    """What is wrong: pairs without a figure, nodes that are slow with most, pairs of sound nodes.

    Slow is under `share` of what is expected, or of the median; a latency over its inverse.
    """
    found = [
        Verdict(subject=f"{one.source} - {one.target}", problem=_why(one.report))
        for one in pairs
        if one.figure is None
    ]
    figures = {(one.source, one.target): one.figure for one in pairs if one.figure is not None}
    if not figures:
        return found
    nodes = sorted({name for pair in figures for name in pair})
    own = {node: [value for pair, value in figures.items() if node in pair] for node in nodes}
    medians = {node: statistics.median(values) for node, values in own.items()}
    # Of nodes, not of pairs: one bad node of four is in half of all pairs.
    usual = expected or statistics.median(medians.values())

    def ratio(figure: float) -> float:
        over, under = (usual, figure) if test.is_latency else (figure, usual)
        return over / under if under else 1.0

    slow = {
        node: ratio(median)
        for node, median in medians.items()
        if len(own[node]) >= ENOUGH_PARTNERS and ratio(median) < share
    }
    for node, value in slow.items():
        found.append(Verdict(subject=node, problem=f"{value:.0%} of what is usual"))
    for pair, figure in figures.items():
        if ratio(figure) < share and not slow.keys() & set(pair):
            text = f"{ratio(figure):.0%} of what is usual"
            found.append(Verdict(subject=f"{pair[0]} - {pair[1]}", problem=text))
    return found


def _why(report: Report) -> str:
    return f"{report.reason}: {report.message}" if report.message else str(report.reason)


def matrix(pairs: Sequence[Pair], test: TestSettings) -> list[list[str]]:
    """Rows of a table, the head first: figures in Gb/s or microseconds, or reasons."""
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
    """One line a pair: bytes a second or seconds, and why there is none."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(("source", "target", "figure", "reason", "message"))
    for one in pairs:
        figure = "" if one.figure is None else f"{one.figure:.9g}"
        writer.writerow(
            (one.source, one.target, figure, one.report.reason or "", one.report.message)
        )
    return text.getvalue()
