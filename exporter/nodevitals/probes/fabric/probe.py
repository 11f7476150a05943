"""Probe `fabric`: small bandwidth and latency tests between nodes, when nobody works.

In: lists of peers, the plan, the gate, tools (perftest, iperf3) here and on the peer. Out:
`nodevitals_fabric_*`, and history rows. Its worker lives on: a thread of it tests
(`fabric/station.py`), another listens for peers, and a run only tells what has happened since the
last one. Off by default.
"""

from __future__ import annotations

import time
from typing import ClassVar

import msgspec
from msgspec.msgpack import encode

from nodevitals.config import ProbeSettings
from nodevitals.probe import Family, Probe, ProbeError, Readings
from nodevitals.probes.fabric import families as fabric
from nodevitals.probes.fabric import kind
from nodevitals.probes.fabric.budget import Meter, Spent
from nodevitals.probes.fabric.members import load, own_name, roster_of
from nodevitals.probes.fabric.protocol import Caller
from nodevitals.probes.fabric.report import REASONS, Report
from nodevitals.probes.fabric.secrets import Secrets
from nodevitals.probes.fabric.server import Server
from nodevitals.probes.fabric.settings import FabricSettings, TestSettings
from nodevitals.probes.fabric.station import Result, Roll, Served, Station

# Of each test the newest results are told: enough for a median; a node that was mended is well
# again after twice as many slots, as it is the source in every second one.
RESULTS_A_TEST = 8


class Kept(msgspec.Struct, frozen=True, array_like=True):
    """The newest result with a peer."""

    test: str
    source: str
    peer: str
    report: Report


class Memory(msgspec.Struct):
    """What must outlive the agent: the budget above all."""

    since: float
    spent: tuple[Spent, ...] = ()
    results: list[Kept] = []
    last_success: dict[str, float] = {}


class FabricProbe(Probe):
    """The fabric between nodes."""

    name: ClassVar[str] = "fabric"
    families: ClassVar[tuple[Family, ...]] = fabric.ALL
    Settings: ClassVar[type[ProbeSettings]] = FabricSettings
    resident: ClassVar[bool] = True
    remembers: ClassVar[bool] = True
    start_seconds: ClassVar[float] = 10.0
    settings: FabricSettings

    @classmethod
    def targets(cls, settings: FabricSettings) -> tuple[str, ...]:
        """One, where it was turned on."""
        return (cls.name,) if settings.enabled is not False else ()

    def open(self) -> None:
        """Read the secrets; the rest begins with the first run, which knows what was spent."""
        self._station: Station | None = None
        if self.settings.tls is None:
            raise ProbeError("tls", "tls is missing")
        self._secrets = Secrets(self.settings.token_file, self.settings.tls)

    def run(self, readings: Readings) -> None:
        """Tell what has happened since the last run."""
        memory = readings.recalled(Memory) or Memory(since=time.time())
        self._secrets.refresh()
        if self._station is None:
            self._meter = Meter(self.settings.budget, memory.spent)
            self._station = self._started()
        self._declare(readings)
        for result in self._station.results():
            if isinstance(result, Served):
                _count_cost(readings, result.test, result.seconds)
            else:
                _take(readings, memory, result)
        memory.spent = self._meter.spent()
        readings.carry = encode(memory)
        self._tell(readings, memory)
        if self._station.broken is not None:
            raise self._station.broken

    def close(self) -> None:
        """Nothing: the worker ends, and with it its threads, its tools and its port."""

    def _started(self) -> Station:
        settings = self.settings

        def roll() -> Roll:
            members = load(settings, self.host)
            name = own_name(members, settings.name)
            return Roll(name, members, roster_of(members, settings.across_pairs))

        station = Station(settings, self.host, Caller(self._secrets), self._meter, roll)
        try:
            server = Server(settings.listen_address, self._secrets, station)
        except OSError as error:
            text = f"cannot listen on {settings.listen_address}: {error.strerror}"
            raise ProbeError("listen", text) from None
        station.start()
        server.start()
        return station

    def _declare(self, readings: Readings) -> None:
        """Counters begin at 0, so that the first event is seen."""
        for test in self.settings.tests:
            words = (test.tool, test.operation)
            readings.increment(fabric.RUNS, 0, *words, "ok", "")
            for reason in REASONS:
                readings.increment(fabric.RUNS, 0, *words, "failed", reason)
            for skip in fabric.SKIPS:
                readings.increment(fabric.SKIPPED, 0, *words, skip)
            readings.increment(fabric.SECONDS, 0, *words)
            readings.increment(fabric.BYTES, 0, *words)

    def _tell(self, readings: Readings, memory: Memory) -> None:
        tests = {test.key: test for test in self.settings.tests}
        for kept in memory.results:
            if kept.test in tests:
                _tell_result(readings, tests[kept.test], kept)
        for test in self.settings.tests:
            readings.add(fabric.EXPECTED, kind.expected_of(test, self.host), *test.labels)
        seen = {(test.tool, test.operation) for test in self.settings.tests}
        for tool, operation in seen:
            last = memory.last_success.get(f"{tool}-{operation}")
            readings.add(fabric.LAST_SUCCESS, last, tool, operation)
        readings.add(fabric.ENABLED, memory.since)
        readings.add(fabric.SLOT, self.settings.slot)
        if self._station is not None and self._station.roll is not None:
            readings.add(fabric.INFO, 1, self._station.roll.name)
            readings.add(fabric.MEMBERS, len(self._station.roll.roster))
            # No failure of the run: that would end the lane, and the last good lists with it.
            trouble = self._station.trouble
            readings.add(fabric.LISTS_READ, not trouble)
            readings.condition("fabric lists", "unreadable" if trouble else "ok", trouble)


def _take(readings: Readings, memory: Memory, result: Result) -> None:
    """Count a result, and keep it where it says something of the fabric."""
    test, report = result.test, result.report
    words = (test.tool, test.operation)
    if result.seconds:
        _count_cost(readings, test, result.seconds)
    if result.skipped:
        readings.increment(fabric.SKIPPED, 1, *words, result.skipped)
    if report is None:
        return
    readings.increment(fabric.RUNS, 1, *words, report.outcome, report.reason or "")
    name = f"{test.tool} {test.operation} {test.device} {result.source} {result.peer}"
    if report.outcome == "ok":
        memory.last_success[f"{test.tool}-{test.operation}"] = result.time
        readings.condition(name, "ok")
    else:
        readings.condition(name, report.reason or "failed", report.message)
    kept = Kept(test.key, result.source, result.peer, report)
    others = [one for one in memory.results if (one.test, one.peer) != (kept.test, kept.peer)]
    newest = [one for one in others if one.test == kept.test][-(RESULTS_A_TEST - 1) :]
    memory.results = [*(one for one in others if one.test != kept.test), *newest, kept]


def _count_cost(readings: Readings, test: TestSettings, seconds: float) -> None:
    readings.increment(fabric.SECONDS, seconds, test.tool, test.operation)
    readings.increment(fabric.BYTES, test.total_bytes, test.tool, test.operation)


def _tell_result(readings: Readings, test: TestSettings, kept: Kept) -> None:
    tool, operation, device, message_bytes = test.labels
    labels = (tool, operation, kept.source, kept.peer, device, message_bytes)
    if kept.report.outcome != "ok":
        readings.add(fabric.FAILURE, 1, *labels, kept.report.reason or "harness")
        return
    row = kept.report.rows[0]
    if test.is_latency:
        for statistic, seconds in (row.latency_seconds or {}).items():
            readings.add(fabric.LATENCY, seconds, *labels, statistic)
    else:
        readings.add(fabric.BANDWIDTH, row.bandwidth_bytes_per_second, *labels)
