"""Tests every pair of some nodes once.

In: nodes that ssh reaches, and one test. Out: a figure or a reason for each pair. The pairs come
from the plan of the agents; the pairs of one round run at the same time.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor

import msgspec

from nodevitals.checks import remote
from nodevitals.probes.fabric import measurement
from nodevitals.probes.fabric.plan import Pairing, Roster, rounds
from nodevitals.probes.fabric.report import Report, failed
from nodevitals.probes.fabric.settings import TestSettings
from nodevitals.probes.fabric.tool_process import ToolMissingError, ToolProcess

TRIES = 10
TRY_SECONDS = 0.3
FIRST_PORT, LAST_PORT = 18700, 18799


class Pair(msgspec.Struct, frozen=True, kw_only=True):
    """The result of one pair."""

    source: str
    target: str
    report: Report

    @property
    def figure(self) -> float | None:
        """Bytes per second, or the median in seconds of a latency test."""
        if self.report.outcome != "ok":
            return None
        row = self.report.rows[0]
        latency = row.latency_seconds
        return latency["median"] if latency else row.bandwidth_bytes_per_second


def run(
    nodes: Sequence[str],
    test: TestSettings,
    gids: Mapping[str, int | None],
    progress: Callable[[int, int], None],
) -> list[Pair]:
    """Test every pair once. `progress` is called with the numbers of finished and of all pairs."""
    roster = Roster((node, "") for node in nodes)
    turns = [list(roster.pairings(number)) for number in range(rounds(len(nodes)))]
    total = sum(map(len, turns))
    pairs: list[Pair] = []
    # Another port each time: a server left from one test must not accept the client of another.
    ports = itertools.cycle(range(FIRST_PORT, LAST_PORT + 1))
    with ThreadPoolExecutor(max_workers=max(1, len(nodes) // 2)) as threads:
        for pairings in turns:
            jobs = [threads.submit(_measure, one, test, gids, next(ports)) for one in pairings]
            for job in jobs:
                pairs.append(job.result())
                progress(len(pairs), total)
    return pairs


def _measure(
    pairing: Pairing, test: TestSettings, gids: Mapping[str, int | None], port: int
) -> Pair:
    report = _tested(pairing, test, gids, port)
    return Pair(source=pairing.source, target=pairing.target, report=report)


def _tested(
    pairing: Pairing, test: TestSettings, gids: Mapping[str, int | None], port: int
) -> Report:
    """Start the server on one node and the client on the other; the client retries until the server
    listens.
    """
    argv = measurement.argv(test, gids[pairing.target], port)
    limit = test.timeout + TRIES * TRY_SECONDS
    try:
        server = ToolProcess(remote.command(pairing.target, argv, limit))
    except ToolMissingError as error:
        return failed("tool_missing", str(error))
    try:
        client = measurement.argv(test, gids[pairing.source], port, pairing.target)
        for _ in range(TRIES):
            time.sleep(TRY_SECONDS)
            done = remote.run(pairing.source, client, test.timeout)
            report = _judged(test, done)
            if report.reason != "unreachable" or server.status() is not None:
                break
        if report.outcome != "ok" and server.status() not in (None, 0):
            report = _server_report(test, server, report)
        return report
    finally:
        server.end()


def _judged(test: TestSettings, done: remote.Done) -> Report:
    if done.status in (124, 137, -1):
        return failed("timeout", f"no result in {test.timeout:g} s")
    if done.status in (126, 127):
        return failed("tool_missing", done.text.strip())
    return measurement.judge(test, done.text, done.status)


def _server_report(test: TestSettings, server: ToolProcess, report: Report) -> Report:
    """The server's reason, where it ended by itself, is the more exact one."""
    own = _judged(test, remote.Done(server.text(), server.status() or 0))
    return report if own.reason in (None, "harness", "timeout") else own
