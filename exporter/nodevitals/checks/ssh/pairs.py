"""Tests pairs of nodes by ssh, as the hub does it through the agents.

In: a resolved request, and what ssh found on the nodes. Out: a result for each run. The pairs of a
round run at the same time.
"""

from __future__ import annotations

import itertools
import secrets
import shlex
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

from msgspec.structs import replace

from nodevitals.checks.model import CheckRequest, RunResult
from nodevitals.checks.requests.rounds import Plan
from nodevitals.checks.requests.runs import by_node, pair_tests
from nodevitals.checks.ssh import remote
from nodevitals.probes.fabric import measurement
from nodevitals.probes.fabric.node.cpus import pinned
from nodevitals.probes.fabric.settings import TestSettings
from nodevitals.probes.fabric.tools.process import ToolMissingError, ToolProcess
from nodevitals.probes.fabric.tools.report import Report, failed

TRIES = 10
TRY_SECONDS = 0.3
START_SECONDS = 15.0
"""Time for ssh to start the tools, which a busy machine delays."""
FIRST_PORT, LAST_PORT = 18700, 18799
ENDED = (124, 137, -1)
"""Statuses of a tool that was ended at its time limit, or whose node did not answer."""
LATE_SHARE = 0.5
"""Share of the time limit after which a test that still runs may not end in time."""


Ports = Mapping[tuple[str, str], remote.Port]
"""By node and device."""


class Tests:
    """The tests of a request between nodes that ssh reaches."""

    __test__ = False  # not for pytest

    def __init__(
        self, request: CheckRequest, ports: Ports, timeout_seconds: float | None = None
    ) -> None:
        """A `timeout_seconds` replaces the time limit of each test."""
        self._request, self._timeout = request, timeout_seconds
        self._ports = ports
        # Each test has its own port: a server left by one must not accept the client of another.
        # Two persons may test the same nodes: they begin elsewhere.
        numbers = range(FIRST_PORT, LAST_PORT + 1)
        first = secrets.randbelow(len(numbers))
        self._numbers = itertools.cycle((*numbers[first:], *numbers[:first]))
        self._plan = Plan(request)
        self._width = max(1, len(request.nodes) // 2)

    def _of(self, series: tuple[str, ...]) -> list[TestSettings]:
        tests = pair_tests(self._request, series)
        limit = self._timeout
        return [test if limit is None else replace(test, timeout=limit) for test in tests]

    def run_all(self, progress: Callable[[int, int], None]) -> list[RunResult]:
        """The planned runs. `progress` is called with the numbers of ended and of all runs."""
        results: list[RunResult] = []
        numbers = itertools.count()
        with ThreadPoolExecutor(max_workers=self._width) as threads:
            for pairings in self._plan:
                jobs = [
                    threads.submit(self.run, next(numbers), (pairing.source, pairing.target))
                    for pairing in pairings
                ]
                for job in jobs:
                    results.append(job.result())
                    progress(len(results), self._plan.runs)
        return results

    def run(self, number: int, nodes: tuple[str, ...], series: tuple[str, ...] = ()) -> RunResult:
        """The tests of one pair, one after the other: all, or those of some series."""
        started, clock = time.time(), time.monotonic()
        failures = measurement.FailedTests()
        reports, commands, outputs = [], [], []
        tests = self._of(series)
        for test in tests:
            left_out = failures.left_out(test)
            report, ran = (left_out, []) if left_out else self._tested(test, nodes)
            failures.add(test, report)
            shown = ran if report.outcome != "ok" else ran[1:]
            reports.append(report)
            commands.append(by_node((end.node, shlex.join(end.argv)) for end in ran))
            outputs.append(by_node((end.node, end.text) for end in shown))
        return RunResult(
            number=number,
            nodes=nodes,
            reports=tuple(reports),
            commands=tuple(commands),
            outputs=tuple(outputs),
            ports_bytes_per_second=tuple(self._rates(test, nodes) for test in tests),
            port_limits=tuple(self._limits(test, nodes) for test in tests),
            series=series,
            started=started,
            seconds=time.monotonic() - clock,
        )

    def _rates(self, test: TestSettings, nodes: tuple[str, ...]) -> tuple[float, float] | None:
        source, target = nodes
        rates = (
            self._port(source, test.device).bytes_per_second,
            self._port(target, test.on_target().device).bytes_per_second,
        )
        return (rates[0], rates[1]) if rates[0] and rates[1] else None

    def _limits(self, test: TestSettings, nodes: tuple[str, ...]) -> tuple[str, str]:
        source, target = nodes
        of_source = self._port(source, test.device).limit
        return of_source, self._port(target, test.on_target().device).limit

    def _port(self, node: str, device: str) -> remote.Port:
        return self._ports.get((node, device), remote.Port())

    def _tested(self, test: TestSettings, nodes: tuple[str, ...]) -> tuple[Report, list[_Ran]]:
        """Start the server on one node and the client on the other; the client tries again until
        the server listens. Returns what ran on the target, then on the source.
        """
        source, target = nodes
        number = next(self._numbers)
        here, there = self._port(source, test.device), self._port(target, test.on_target().device)
        argv = measurement.argv(test.on_target(), there.gid_index, number)
        served = _Ran(target, pinned(argv, there.cpus))
        try:
            server = ToolProcess(remote.command(target, served.argv, test.timeout + START_SECONDS))
        except ToolMissingError as error:
            return failed("tool_missing", str(error)), []
        try:
            peer = there.address if here.address and there.address else target
            own = here.address if peer != target else ""
            argv = measurement.argv(test, here.gid_index, number, peer, own)
            argv = pinned(argv, here.cpus)
            for _ in range(TRIES):
                time.sleep(TRY_SECONDS)
                with _Look(source, number, LATE_SHARE * test.timeout) as look:
                    done = remote.run(source, argv, test.timeout)
                report = _judged(test, done, look.connected)
                if report.reason != "unreachable" or server.status() is not None:
                    break
            if report.outcome != "ok" and server.status() not in (None, 0):
                report = _server_report(test, server, report)
            ran = [served._replace(text=server.text()), _Ran(source, argv, done.text)]
            return report, ran
        finally:
            server.end()


class _Ran(NamedTuple):
    """A tool that ran on a node, and its output."""

    node: str
    argv: list[str]
    text: str = ""


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
    if done.status in ENDED:
        # Without an answer the node may be down, which is not the same as slow.
        return measurement.unfinished(test, connected and done.status != -1)
    if done.status in (126, 127):
        return failed("tool_missing", done.text.strip())
    return measurement.judge(test, done.text, done.status)


def _server_report(test: TestSettings, server: ToolProcess, report: Report) -> Report:
    """The report of the server where it ended by itself: its reason is more exact. A client that
    loses a server which was ended at its time limit says nothing about the network.
    """
    status = server.status() or 0
    own = _judged(test, remote.Done(server.text(), status))
    if report.reason == "unreachable" and status in ENDED:
        return own
    return report if own.reason in (None, "harness", "timeout") else own
