"""Probe `selfcheck`: bandwidth tests inside this node, while no job uses it.

In: the gate, the budget, and tools (nvbandwidth, mbw, perftest, nccl-tests, dcgmi, ascend-dmi).
Out: `nodevitals_selfcheck_*`, and rows of the history. The worker is resident: a thread of it runs
the checks, and a run of the probe reports what has finished since the last one.
"""

from __future__ import annotations

import msgspec

from nodevitals.probe import Families, Probe, ProbeError, Readings
from nodevitals.probes.selfcheck.execution import REFUSALS
from nodevitals.probes.selfcheck.results import KINDS, OUTCOMES, Result, worst
from nodevitals.probes.selfcheck.runner import FinishedCheck, Ran, SelfcheckRunner
from nodevitals.probes.selfcheck.settings import Meter, SelfcheckSettings, Spent

# Outcomes of the last check of a device; a refused check changes nothing.
RESULTS = tuple(outcome for outcome in OUTCOMES if outcome != "refused")

results = Families("selfcheck", "kind", "device", "port", kind=KINDS)
BANDWIDTH = results.gauge(
    "bandwidth_bytes_per_second",
    "Bandwidth in the last check of this device; missing where it measured none.",
)
OUTCOME = results.gauge(
    "outcome",
    "Always 1; outcome of the last check of this device. harness is a failure of the tool, which "
    "says nothing of the hardware.",
    outcome=RESULTS,
)
TIME = results.gauge("last_timestamp_seconds", "Unix time of the last check of this device.")

checks = Families("selfcheck", kind=KINDS)
EXPECTED = checks.gauge(
    "bandwidth_expected_bytes_per_second", "Bandwidth of a healthy device, as configured."
)
OFFERED = checks.gauge("offered", "Whether the node has the tool and a device for this check.")
RUNS = checks.counter("runs_total", "Number of results, by outcome.", outcome=RESULTS)
REFUSED = checks.counter(
    "refused_total",
    "Number of times that a check that was due was not started, or was stopped, by the reason.",
    reason=REFUSALS,
)
SECONDS = checks.counter("seconds_total", "Time for which tools of this check ran on the node.")

ALL = (*results, *checks)


class Kept(msgspec.Struct, frozen=True, array_like=True):
    """A result, with the name of its check and the time of the check (seconds since the epoch)."""

    check: str
    time: float
    result: Result


class SelfcheckState(msgspec.Struct):
    """What must outlive the agent: the budget, and the last results with their times."""

    spent: tuple[Spent, ...] = ()
    kept: list[Kept] = []

    def ran(self) -> dict[str, Ran]:
        """When each check ran last, and its worst outcome."""
        times = {kept.check: kept.time for kept in self.kept}
        return {
            check: Ran(
                time, worst(kept.result.outcome for kept in self.kept if kept.check == check)
            )
            for check, time in times.items()
        }


class SelfcheckProbe(Probe):
    """Bandwidth tests inside this node, while no job uses it."""

    name = "selfcheck"
    default = "off"
    families = ALL
    Settings = SelfcheckSettings
    State = SelfcheckState
    resident = True
    persistent = True
    settings: SelfcheckSettings
    state: SelfcheckState

    def open(self) -> None:
        """Do nothing: the first run starts the thread, because only a run has the state."""
        self._runner: SelfcheckRunner | None = None

    def run(self, readings: Readings) -> None:
        """Report what has happened since the last run."""
        if self._runner is None:
            self._meter = Meter(self.settings.budget.seconds_per_day, self.state.spent)
            self._runner = SelfcheckRunner(self.settings, self.host, self._meter, self.state.ran())
            self._runner.start()
        runner = self._runner
        self._declare(readings)
        for finished in runner.finished():
            self._record(readings, finished)
        self.state.spent = self._meter.spent()
        self._report(readings, runner)
        if runner.error is not None:
            raise runner.error
        if not runner.offered.checks and not self.state.kept:
            reasons = "; ".join(f"{kind}: {why}" for kind, why in runner.offered.absent.items())
            raise ProbeError("missing", f"nothing to check: {reasons}")

    def close(self) -> None:
        """End the check that runs."""
        if self._runner is not None:
            self._runner.close()

    def _declare(self, readings: Readings) -> None:
        """Start the counters at 0, so that the first event counts as an increase."""
        for kind in self.settings.kinds:
            readings.increment(SECONDS, 0, kind)
            for outcome in RESULTS:
                readings.increment(RUNS, 0, kind, outcome)
            for reason in REFUSALS:
                readings.increment(REFUSED, 0, kind, reason)

    def _record(self, readings: Readings, done: FinishedCheck) -> None:
        check, finished = done.check, done.finished
        readings.increment(SECONDS, finished.seconds, check.kind)
        if finished.refused in REFUSALS:
            readings.increment(REFUSED, 1, check.kind, finished.refused)
        if finished.refused:
            return
        keys = {result.key for result in finished.results}
        self.state.kept = [
            kept
            for kept in self.state.kept
            if kept.check != check.name and kept.result.key not in keys
        ]
        self.state.kept += [Kept(check.name, done.time, result) for result in finished.results]
        for result in finished.results:
            readings.increment(RUNS, 1, result.kind, result.outcome)
            name = " ".join(part for part in ("selfcheck", *result.key) if part)
            readings.condition(name, result.outcome, result.message)

    def _report(self, readings: Readings, runner: SelfcheckRunner) -> None:
        """Expose the last results of the checks that the node has now."""
        names = {check.name for check in runner.offered.checks}
        for kept in self.state.kept:
            if kept.check in names:
                key = kept.result.key
                readings.add(BANDWIDTH, kept.result.bandwidth_bytes_per_second, *key)
                readings.add(OUTCOME, 1, *key, kept.result.outcome)
                readings.add(TIME, kept.time, *key)
        for kind in self.settings.kinds:
            readings.add(EXPECTED, self.settings.expected.of(kind), kind)
            readings.add(OFFERED, kind not in runner.offered.absent, kind)
