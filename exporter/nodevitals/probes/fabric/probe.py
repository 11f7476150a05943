"""Probe `fabric`: small bandwidth and latency tests between nodes while no job uses them.

In: lists of peers, the plan, the gate, and tools (perftest, iperf3) here and on the peers. Out:
`nodevitals_fabric_*`, and rows of the history. The worker is resident: one thread of it runs tests,
another listens for peers, and a run of the probe reports what has finished since the last one.
"""

from __future__ import annotations

import os
import signal
import time
from typing import TYPE_CHECKING, Union

import msgspec

from nodevitals.probe import Probe, ProbeError, Readings
from nodevitals.probes.fabric import families as fabric
from nodevitals.probes.fabric import measurement
from nodevitals.probes.fabric.admission import Meter, Spent
from nodevitals.probes.fabric.leases import LeaseMailbox
from nodevitals.probes.fabric.measurement import ServedTest, StartedTest
from nodevitals.probes.fabric.orders import ORDER_OUTCOMES, AcceptedOrder, FinishedOrder
from nodevitals.probes.fabric.settings import (
    FabricSettings,
    TestSettings,
)
from nodevitals.probes.fabric.tools.report import REASONS, Report
from nodevitals.wire import LEASES, LeaseReply

if TYPE_CHECKING:
    from nodevitals.probes.fabric.runner import FabricRunner

# Number of newest results of each test that are exposed: enough for a median. A repaired node
# counts as healthy after twice as many slots, because it is the source in every second slot.
RESULTS_PER_TEST = 8
# At most so many refused orders are logged in so many seconds.
MAX_REFUSALS = 10
REFUSAL_SECONDS = 60.0


class PairResult(msgspec.Struct, frozen=True, array_like=True):
    """The newest result of a test with a peer."""

    test: str
    source: str
    peer: str
    report: Report


class FabricState(msgspec.Struct):
    """What must outlive the agent, above all the budget. `since` is when this node first took part,
    in seconds since the epoch; 0 before that.
    """

    since: float = 0.0
    spent: tuple[Spent, ...] = ()
    results: list[PairResult] = []
    last_success: dict[str, float] = {}


class OrderLog:
    """Logs orders that have ended or were refused: at most MAX_REFUSALS refusals in
    REFUSAL_SECONDS, and the number of those left out.
    """

    def __init__(self) -> None:
        self._since = 0.0
        self._refused = 0

    def note(self, readings: Readings, order: FinishedOrder, now: float) -> None:
        """Log one order."""
        if order.outcome != "refused":
            readings.note(order.text, warning=order.outcome in ("failed", "lease"))
            return
        if not self._refused or now - self._since > REFUSAL_SECONDS:
            if self._refused > MAX_REFUSALS:
                more = self._refused - MAX_REFUSALS
                readings.note(f"{more} more orders were refused since", warning=True)
            self._since, self._refused = now, 0
        self._refused += 1
        if self._refused <= MAX_REFUSALS:
            readings.note(order.text, warning=True)


class FabricProbe(Probe):
    """Small bandwidth and latency tests between nodes, while no job uses them."""

    name = "fabric"
    default = "off"
    families = fabric.ALL
    Settings = FabricSettings
    State = FabricState
    Message = LeaseReply
    resident = True
    persistent = True
    start_seconds = 10.0
    settings: FabricSettings
    state: FabricState

    def open(self) -> None:
        """Read the secrets. The first run starts the rest, because only a run has the state."""
        # Imported only in this worker, not in the parent of all forks: most nodes have this probe
        # off.
        from nodevitals.probes.fabric.secrets import HubToken, Secrets

        self._runner: FabricRunner | None = None
        if self.settings.tls is None:
            raise ProbeError("tls", "tls is missing")
        self._secrets = Secrets(self.settings.token_file, self.settings.tls)
        hub = self.settings.hub
        self._hub_token = HubToken(hub.token_file, self._secrets) if hub else None
        self._leases = LeaseMailbox()
        self._order_log = OrderLog()
        self._governor_problem = ""

    def run(self, readings: Readings) -> None:
        """Report what has happened since the last run."""
        self._secrets.refresh()
        if self._hub_token is not None:
            self._hub_token.refresh()
            problem = self._hub_token.problem
            readings.condition("fabric hub token", "unusable" if problem else "ok", problem)
        if self._runner is None:
            self._meter = Meter(self.settings.budget, self.state.spent)
            self._runner = self._started()
            self.state.since = self.state.since or time.time()
        self._pass_leases(readings)
        self._declare(readings)
        for finished in self._runner.finished():
            if isinstance(finished, AcceptedOrder):
                readings.note(finished.text)
            elif isinstance(finished, FinishedOrder):
                readings.increment(fabric.ORDERS, 1, finished.outcome)
                self._order_log.note(readings, finished, time.monotonic())
            elif isinstance(finished, ServedTest):
                _count_cost(readings, finished)
            else:
                self._record(readings, finished)
        self.state.spent = self._meter.spent()
        self._report_tests(readings)
        self._report_lists(readings, self._runner)
        if self.settings.governor != "unchanged":
            self._report_governor(readings, self._runner.governors.problem)
        if self._runner.error is not None:
            raise self._runner.error

    def close(self) -> None:
        """Restore the governors; threads, tools and the port end with the worker."""
        if self._runner is not None:
            self._runner.governors.close()

    def _started(self) -> FabricRunner:
        from nodevitals.probes.fabric.protocol import FabricClient
        from nodevitals.probes.fabric.runner import FabricRunner
        from nodevitals.probes.fabric.server import FabricServer

        settings = self.settings
        runner = FabricRunner(settings, self.host, FabricClient(self._secrets), self._meter)
        try:
            server = FabricServer(
                settings.listen_address,
                self._secrets,
                runner.server_side,
                runner.orders,
                self._hub_token,
                settings.hub.names if settings.hub else (),
                self._leases,
            )
        except OSError as error:
            text = f"cannot listen on {settings.listen_address}: {error.strerror}"
            raise ProbeError("listen", text) from None
        runner.start()
        server.start()
        if settings.governor != "unchanged":
            signal.signal(signal.SIGTERM, self._stop)
        return runner

    def _stop(self, *_: object) -> None:
        """End the worker, whose agent stops, with the governors restored."""
        self.close()
        os._exit(0)

    def _pass_leases(self, readings: Readings) -> None:
        """Pass the lease that the hub asked for to the agent, and the agent's reply to the
        server.
        """
        membership = self._runner.lists.membership if self._runner else None
        self._leases.name = membership.name if membership else ""
        for reply in readings.received:
            self._leases.replied(reply)
        lease = self._leases.unsent()
        if lease is not None:
            readings.send(LEASES, lease)

    def _declare(self, readings: Readings) -> None:
        """Start the counters at 0, so that the first event counts as an increase: the counters of
        planned tests and of the tests that the hub has ordered so far.
        """
        tested: set[tuple[str, str]] = {(test.tool, test.operation) for test in self.settings.tests}
        if self._runner is not None and self._runner.orders is not None:
            tested |= self._runner.orders.tested
            for outcome in ORDER_OUTCOMES:
                readings.increment(fabric.ORDERS, 0, outcome)
        for labels in sorted(tested):
            readings.increment(fabric.RUNS, 0, *labels, "ok", "")
            for reason in REASONS:
                readings.increment(fabric.RUNS, 0, *labels, "failed", reason)
            for skip in fabric.SKIPS:
                readings.increment(fabric.SKIPPED, 0, *labels, skip)
            readings.increment(fabric.SECONDS, 0, *labels)
            readings.increment(fabric.BYTES, 0, *labels)

    def _record(self, readings: Readings, started: StartedTest) -> None:
        """Count a test, and keep its result if it has one."""
        test, report = started.test, started.report
        labels = (test.tool, test.operation)
        if started.seconds:
            _count_cost(readings, started)
        if started.skipped in fabric.SKIPS:
            readings.increment(fabric.SKIPPED, 1, *labels, started.skipped)
        if report is None:
            return
        readings.increment(fabric.RUNS, 1, *labels, report.outcome, report.reason or "")
        planned = {test.key for test in self.settings.tests}
        if started.ordered and (started.forced or test.key not in planned):
            return  # the hub has its result
        name = f"{test.tool} {test.operation} {test.device} {started.source} {started.peer}"
        if report.outcome == "ok":
            self.state.last_success[f"{test.tool}-{test.operation}"] = started.time
            readings.condition(name, "ok")
        else:
            readings.condition(name, report.reason or "failed", report.message)
        self._keep(PairResult(test.key, started.source, started.peer, report))

    def _keep(self, new: PairResult) -> None:
        """Keep a result in place of the last one with this peer, and the newest of the others."""
        others = [
            result
            for result in self.state.results
            if (result.test, result.peer) != (new.test, new.peer)
        ]
        newest = [other for other in others if other.test == new.test][-(RESULTS_PER_TEST - 1) :]
        self.state.results = [
            *(result for result in others if result.test != new.test),
            *newest,
            new,
        ]

    def _report_tests(self, readings: Readings) -> None:
        tests = {test.key: test for test in self.settings.tests}
        for result in self.state.results:
            if result.test in tests:
                _report_result(readings, tests[result.test], result)
        for test in self.settings.tests:
            expected = measurement.expected_of(test, self.host)
            readings.add(fabric.EXPECTED, expected, *test.labels)
        for tool, operation in {(test.tool, test.operation) for test in self.settings.tests}:
            last = self.state.last_success.get(f"{tool}-{operation}")
            readings.add(fabric.LAST_SUCCESS, last, tool, operation)
        if self.settings.tests:  # without tests, there is no plan that could be late
            readings.add(fabric.ENABLED, self.state.since)
            readings.add(fabric.SLOT, self.settings.slot)

    def _report_governor(self, readings: Readings, problem: str) -> None:
        readings.condition("fabric governor", "not set" if problem else "ok", problem)
        if problem and problem != self._governor_problem:
            readings.note(problem, warning=True)
        self._governor_problem = problem

    def _report_lists(self, readings: Readings, runner: FabricRunner) -> None:
        membership, problem = runner.lists.membership, runner.lists.problem
        if membership is None:
            return
        readings.add(fabric.INFO, 1, membership.name)
        readings.add(fabric.MEMBERS, len(membership.roster))
        # Not a failure of the run: that would end the worker, and the last good lists would be
        # lost.
        readings.add(fabric.LISTS_READ, not problem)
        readings.condition("fabric lists", "unreadable" if problem else "ok", problem)


def _count_cost(readings: Readings, finished: Union[StartedTest, ServedTest]) -> None:
    labels = (finished.test.tool, finished.test.operation)
    readings.increment(fabric.SECONDS, finished.seconds, *labels)
    readings.increment(fabric.BYTES, finished.bytes, *labels)


def _report_result(readings: Readings, test: TestSettings, result: PairResult) -> None:
    tool, operation, device, message_bytes = test.labels
    labels = (tool, operation, result.source, result.peer, device, message_bytes)
    if result.report.outcome != "ok":
        readings.add(fabric.FAILURE, 1, *labels, result.report.reason or "harness")
        return
    row = result.report.rows[0]
    if test.is_latency:
        for statistic, seconds in (row.latency_seconds or {}).items():
            readings.add(fabric.LATENCY, seconds, *labels, statistic)
    else:
        readings.add(fabric.BANDWIDTH, row.bandwidth_bytes_per_second, *labels)
