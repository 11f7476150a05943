"""What the agent exposes and logs about its targets: `nodevitals_probe_*`, a line per change."""

from __future__ import annotations

import logging
from collections.abc import Mapping

from nodevitals.catalogue import (
    PROBE_DURATION,
    PROBE_INTERVAL,
    PROBE_LAST_SUCCESS,
    PROBE_LEASE_INTERVAL,
    PROBE_RUNS,
    PROBE_STUCK,
    PROBE_SUCCESS,
    PROBE_UNANSWERED,
    WORKER_PROCESSES,
)
from nodevitals.engine.overview import TargetView, view_of
from nodevitals.engine.target import Target
from nodevitals.exposition import Snapshot, Source, render_samples
from nodevitals.probe import Family
from nodevitals.state.journal import Journal
from nodevitals.wire import OUTCOMES, Outcome, ProbeResult, Sample

log = logging.getLogger(__name__)


class Status:
    """Puts each target's status and counters into the snapshot."""

    def __init__(self, snapshot: Snapshot, journal: Journal) -> None:
        self._snapshot = snapshot
        self._journal = journal
        self._workers: tuple[int, int] | None = None
        self._views: dict[tuple[str, str], TargetView] = {}

    def views(self) -> tuple[TargetView, ...]:
        """What people are shown of each target."""
        return tuple(self._views.values())

    def begin(self, target: Target, now: float) -> None:
        """Expose a new target: its counters start at 0."""
        for outcome in OUTCOMES:
            self._add(target, outcome, 0, urgent=False)
        self.show_counters(target)
        self.show(target, now)

    def count(self, target: Target, outcome: Outcome, urgent: bool) -> None:
        """Count a run that has ended. One that ended as the run before it is not urgent."""
        self._add(target, outcome, 1, urgent)

    def _add(self, target: Target, outcome: Outcome, amount: int, urgent: bool) -> None:
        sample = Sample(PROBE_RUNS.name, (*target.spec.key, outcome), amount)
        self._journal.add(target.kept, [sample], urgent)

    def show_counters(self, target: Target) -> None:
        """Expose the counters that the agent keeps for a target."""
        totals = [] if target.absent else self._journal.totals(target.kept)
        self._snapshot.put(target.kept, render_samples(self._snapshot.families, totals))

    def show_changes(self, targets: Mapping[tuple[str, str], Target]) -> None:
        """Expose the counters that have changed."""
        for source in self._journal.changed_sources():
            counted = targets.get((source.probe, source.target))
            if counted is not None:
                self.show_counters(counted)

    def show(self, target: Target, now: float) -> None:
        """Expose how a target's runs do. One that is absent and not expected has no status."""
        self._views[target.spec.key] = view_of(target, now)
        if target.absent:
            self._snapshot.put(target.status, {})
            return
        last, overdue = target.last, target.lifecycle.overdue(now)
        fresh = last is not None and last.outcome == "ok" and now < target.fresh_until
        values: list[tuple[Family, float | None]] = [
            (PROBE_SUCCESS, float(fresh and not overdue)),
            (PROBE_INTERVAL, target.spec.timing.interval_seconds),
            (PROBE_STUCK, round(overdue, 3)),
            (PROBE_UNANSWERED, round(target.unanswered_seconds(now), 3)),
            (PROBE_DURATION, None if last is None else last.duration_seconds),
            (PROBE_LAST_SUCCESS, target.last_success),
            (PROBE_LEASE_INTERVAL, target.lease_interval_seconds),
        ]
        samples = [
            Sample(family.name, target.spec.key, value)
            for family, value in values
            if value is not None
        ]
        self._snapshot.put(target.status, render_samples(self._snapshot.families, samples))

    def show_workers(self, live: int, stuck: int) -> None:
        """Expose the number of worker processes, where it has changed."""
        if (live, stuck) == self._workers:
            return
        self._workers = (live, stuck)
        samples = [
            Sample(WORKER_PROCESSES.name, (state,), count)
            for state, count in (("live", live), ("stuck", stuck))
        ]
        lines = render_samples(self._snapshot.families, samples)
        self._snapshot.put(Source("agent", "", "workers"), lines)

    def remove(self, target: Target) -> None:
        """Expose nothing more of a target."""
        self._views.pop(target.spec.key, None)
        for source in (target.readings, target.status, target.kept):
            self._snapshot.drop(source)

    def log(self, target: Target, result: ProbeResult) -> None:
        """Log a result where it differs from the one before, and the probe's own lines."""
        state = state_of(result)
        name = " ".join(dict.fromkeys(target.spec.key))
        for note in result.notes:
            log.log(logging.WARNING if note.warning else logging.INFO, "%s: %s", name, note.text)
        if state == target.logged:
            return
        target.logged = state
        if result.outcome in ("ok", "absent"):
            log.info("%s: %s", name, f"{state} {result.text}".rstrip())
        else:
            log.warning("%s: %s (%s): %s", name, result.outcome, state, result.text)
        if result.trace:
            log.warning("%s: %s", name, result.trace.rstrip())


def state_of(result: ProbeResult) -> str:
    """One word for the log and the history."""
    return "ok" if result.outcome == "ok" else result.reason or result.outcome
