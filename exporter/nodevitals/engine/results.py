"""Handles the results of runs: it exposes samples, writes counts and rows to the journal, exposes
the status of each target (`nodevitals_probe_*`), and logs changes.

In: a ProbeResult, from a worker or made here for a run without one. A vendor's library may have
overwritten a worker's memory, so every result is checked against the probe's families again. Only
the supervisor's thread uses this module.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping
from typing import NamedTuple, Optional

import msgspec

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
    probe_class,
)
from nodevitals.engine.lifecycle import Phase
from nodevitals.engine.target import Target
from nodevitals.exposition import InvalidSampleError, Snapshot, Source, render_samples
from nodevitals.probe import Family
from nodevitals.state.journal import Journal
from nodevitals.wire import OUTCOMES, Outcome, ProbeResult, Sample, one_line

# The states of a target, those that need attention first.
STATES = ("stuck", "overdue", "timeout", "error", "stale", "waiting", "ok", "absent")
log = logging.getLogger(__name__)


class Intake:
    """Checks and exposes the results of runs."""

    def __init__(self, snapshot: Snapshot, journal: Journal) -> None:
        self._snapshot = snapshot
        self._journal = journal

    def finished(
        self, target: Target, result: ProbeResult, monotonic: float, wall: float
    ) -> ProbeResult:
        """Expose what a run returned. Returns the result, or a failure where it is invalid."""
        try:
            lines = self._rendered(target, result)
            self._journal.add(target.kept, result.increments)
        except InvalidSampleError as error:
            return failure("invalid", str(error))
        target.answered()
        if lines or result.outcome in ("ok", "absent"):
            self._expose(target, lines, monotonic)
        self._journal.observe(wall, target.spec.probe, result.conditions)
        self._journal.note(wall, target.spec.probe, result.events)
        return result

    def unfinished(self, target: Target, result: ProbeResult, monotonic: float) -> None:
        """Expose what a run has read shortly before its deadline. Counters and state come only from
        finished runs: the next run counts the same again. Raises InvalidSampleError.
        """
        lines = self._rendered(target, result)
        target.unfinished_at, target.unfinished_call = result.unfinished_at, result.text
        self._expose(target, lines, monotonic)

    def _rendered(self, target: Target, result: ProbeResult) -> dict[str, bytes]:
        own = probe_class(target.spec.probe).families
        return render_samples({family.name: family for family in own}, result.samples)

    def _expose(self, target: Target, lines: Mapping[str, bytes], monotonic: float) -> None:
        target.fresh_until = monotonic + target.spec.timing.stale_after_seconds
        self._snapshot.put(target.readings, lines)


def without_readings(result: ProbeResult) -> ProbeResult:
    """The result without its readings, which are in the snapshot and the journal."""
    return msgspec.structs.replace(
        result, samples=(), increments=(), conditions=(), events=(), messages=(), state=b""
    )


def has_news(result: ProbeResult) -> bool:
    """Whether a run has read or counted anything; most runs of the kernel log do not."""
    return bool(result.samples) or any(increment.value for increment in result.increments)


def timeout(target: Target, seconds: float, how: str) -> ProbeResult:
    """The result of a run that was ended at its deadline; `how`: how its process ended."""
    return ProbeResult(
        outcome="timeout",
        reason="timeout",
        text=one_line(f"{_overdue(target)}; {how}"),
        duration_seconds=seconds,
    )


def stuck(target: Target) -> ProbeResult:
    """The result of a run whose process SIGKILL did not end."""
    text = f"{_overdue(target)}; not ended by SIGKILL; it is not started again until it ends"
    return ProbeResult(outcome="stuck", reason="stuck", text=one_line(text))


def _overdue(target: Target) -> str:
    text = f"no result within {target.lifecycle.allowed_seconds:g} s"
    if target.unfinished_at:
        text += f"; reading {target.unfinished_at}, in {target.unfinished_call}"
    return text


def failure(reason: str, text: str, trace: str = "") -> ProbeResult:
    """The result of a run that could not start, or whose process ended by itself."""
    return ProbeResult(outcome="error", reason=reason, text=one_line(text), trace=trace)


class TargetView(NamedTuple):
    """The state of one target at one moment. Times are monotonic, None where there is none."""

    probe: str
    target: str
    state: str
    """One of STATES: the outcome of the last run; `waiting` before there is one, `stale` where its
    samples are too old, `overdue` during a run that is past its deadline."""
    reason: str
    text: str
    ended_at: Optional[float]
    duration_seconds: float
    due_at: float
    """When the next run is due; in the past during a run."""
    overdue_since: Optional[float]
    """The begin of the run that is overdue."""


def view_of(target: Target, now: float) -> TargetView:
    """The record of a target."""
    last, lifecycle = target.last, target.lifecycle
    return TargetView(
        *target.spec.key,
        state=_state(target, now),
        reason=last.reason if last else "",
        text=last.text if last else "",
        ended_at=target.ended_at,
        duration_seconds=last.duration_seconds if last else 0.0,
        due_at=lifecycle.due,
        overdue_since=lifecycle.began if lifecycle.overdue(now) else None,
    )


def _state(target: Target, now: float) -> str:
    if target.lifecycle.overdue(now):
        return "stuck" if target.lifecycle.phase is Phase.STUCK else "overdue"
    if target.last is None:
        return "waiting"
    stale = target.fresh_until == -math.inf or target.fresh_until <= now
    return "stale" if target.last.outcome == "ok" and stale else target.last.outcome


class Status:
    """Puts each target's status and counters into the snapshot."""

    def __init__(self, snapshot: Snapshot, journal: Journal) -> None:
        self._snapshot = snapshot
        self._journal = journal
        self._workers: tuple[int, int] | None = None
        self._views: dict[tuple[str, str], TargetView] = {}

    def views(self) -> tuple[TargetView, ...]:
        """The records of all targets, for the status page."""
        return tuple(self._views.values())

    def begin(self, target: Target, now: float) -> None:
        """Expose a new target: its counters start at 0."""
        for outcome in OUTCOMES:
            self._add(target, outcome, 0, urgent=False)
        self.show_counters(target)
        self.show(target, now)

    def count(self, target: Target, outcome: Outcome, urgent: bool) -> None:
        """Count an ended run; `urgent`: it ended in another way than the run before."""
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
        """Expose a target's status. A target that is absent and not expected has none."""
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
        """Stop exposing a target."""
        self._views.pop(target.spec.key, None)
        for source in (target.readings, target.status, target.kept):
            self._snapshot.drop(source)

    def log(self, target: Target, result: ProbeResult) -> None:
        """Log a result that differs from the one before, and the probe's own log lines."""
        state = state_of(result)
        name = " ".join(dict.fromkeys(target.spec.key))
        for note in result.notes:
            log.log(logging.WARNING if note.warning else logging.INFO, "%s: %s", name, note.text)
        if state == target.logged:
            return
        target.logged = state
        if result.outcome in ("ok", "absent"):
            log.info("%s: %s", name, ": ".join(filter(None, (state, result.text))))
        else:
            log.warning("%s: %s (%s): %s", name, result.outcome, state, result.text)
        if result.trace:
            log.warning("%s: %s", name, result.trace.rstrip())


def state_of(result: ProbeResult) -> str:
    """The result as one word, for the log and the history."""
    return "ok" if result.outcome == "ok" else result.reason or result.outcome
