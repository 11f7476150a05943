"""Tests every pair of some nodes once.

In: nodes that ssh reaches, and one test. Out: a figure or a reason for each pair, or for those that
are repeated. The pairs are planned as the agents plan them; the pairs of a round run at the same
time.
"""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor

import msgspec

from nodevitals.checks.ssh import remote
from nodevitals.probes.fabric import measurement
from nodevitals.probes.fabric.members import Pairing, Roster, rounds
from nodevitals.probes.fabric.settings import TestSettings
from nodevitals.probes.fabric.tools.process import ToolMissingError, ToolProcess
from nodevitals.probes.fabric.tools.report import Report, failed

TRIES = 10
TRY_SECONDS = 0.3
FIRST_PORT, LAST_PORT = 18700, 18799
LATE_SHARE = 0.5
"""Share of the time limit after which a test that still runs may not end in time."""


class Pair(msgspec.Struct, frozen=True, kw_only=True):
    """The result of one pair."""

    source: str
    target: str
    report: Report
    port_bytes_per_second: tuple[float, ...] = ()
    """Rates of the ports of source and target; none where one of them promises none."""

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
    rates: Mapping[str, float | None],
    progress: Callable[[int, int], None],
    only: Collection[tuple[str, ...]] | None = None,
) -> list[Pair]:
    """Test every pair once, or with `only` these pairs one after the other; `rates` are the rates
    of the nodes' ports. `progress` is called with the numbers of finished and of all pairs.
    """
    roster = Roster((node, "") for node in nodes)
    turns = [list(roster.pairings(number)) for number in range(rounds(len(nodes)))]
    if only is not None:
        turns = [[pairing] for pairings in turns for pairing in pairings if _nodes(pairing) in only]
    total = sum(map(len, turns))
    pairs: list[Pair] = []
    # Each test has its own port: a server left by one must not accept the client of another.
    ports = itertools.cycle(range(FIRST_PORT, LAST_PORT + 1))
    with ThreadPoolExecutor(max_workers=max(1, len(nodes) // 2)) as threads:
        for pairings in turns:
            jobs = [
                threads.submit(_tested, pairing, test, gids, next(ports)) for pairing in pairings
            ]
            for pairing, job in zip(pairings, jobs):
                pairs.append(_pair(pairing, job.result(), rates))
                progress(len(pairs), total)
    return pairs


def _nodes(pairing: Pairing) -> tuple[str, ...]:
    return (pairing.source, pairing.target)


def _pair(pairing: Pairing, report: Report, rates: Mapping[str, float | None]) -> Pair:
    nodes = _nodes(pairing)
    known = tuple(rate for node in nodes if (rate := rates[node]) is not None)
    return Pair(
        source=pairing.source,
        target=pairing.target,
        report=report,
        port_bytes_per_second=known if len(known) == len(nodes) else (),
    )


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
            with _Look(pairing.source, port, LATE_SHARE * test.timeout) as look:
                done = remote.run(pairing.source, client, test.timeout)
            report = _judged(test, done, look.connected)
            if report.reason != "unreachable" or server.status() is not None:
                break
        if report.outcome != "ok" and server.status() not in (None, 0):
            report = _server_report(test, server, report)
        return report
    finally:
        server.end()


class _Look:
    """Looks at the client's connection after a while, over a second ssh connection: tools buffer
    their output, and it is lost when they are ended at their time limit.
    """

    def __init__(self, node: str, port: int, seconds: float) -> None:
        self._node, self._port = node, port
        self._timer = threading.Timer(seconds, self._look)
        self.connected = False

    def __enter__(self) -> _Look:
        self._timer.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._timer.cancel()
        self._timer.join()

    def _look(self) -> None:
        self.connected = remote.is_connected(self._node, self._port)


def _judged(test: TestSettings, done: remote.Done, connected: bool = False) -> Report:
    if done.status in (124, 137, -1):
        # Without an answer the node may be down, which is not the same as slow.
        return measurement.unfinished(test, connected and done.status != -1)
    if done.status in (126, 127):
        return failed("tool_missing", done.text.strip())
    return measurement.judge(test, done.text, done.status)


def _server_report(test: TestSettings, server: ToolProcess, report: Report) -> Report:
    """The report of the server where it ended by itself: its reason is more exact."""
    own = _judged(test, remote.Done(server.text(), server.status() or 0))
    return report if own.reason in (None, "harness", "timeout") else own
