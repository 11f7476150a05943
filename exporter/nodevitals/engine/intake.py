"""A run's result, checked and taken in: its samples, counters, conditions and events.

In: a ProbeResult, as a worker sent it or as it is made here for a run without one. Out: lines in
the snapshot, and counts and rows in the journal. A worker's memory may have been overwritten by a
vendor's library, so everything is checked against the probe's families again.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from nodevitals.catalogue import probe_class
from nodevitals.engine.target import Target
from nodevitals.exposition import InvalidSampleError, Snapshot, render_samples
from nodevitals.state.journal import Journal
from nodevitals.wire import ProbeResult, one_line


class Intake:
    """Takes results of targets in. Used by the supervisor's thread alone."""

    def __init__(self, snapshot: Snapshot, journal: Journal) -> None:
        self._snapshot = snapshot
        self._journal = journal

    def finished(
        self, target: Target, result: ProbeResult, monotonic: float, wall: float
    ) -> ProbeResult:
        """Take in what a run returned. The same result; a failure where it does not fit."""
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
        """Expose what a run has read that will soon be past its deadline. Counters and state come
        with a finished run only: the next one counts the same again. Raises InvalidSampleError.
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
    """How a run ended, without what it has read: the snapshot and the journal have that."""
    return msgspec.structs.replace(
        result, samples=(), increments=(), conditions=(), events=(), messages=(), state=b""
    )


def has_news(result: ProbeResult) -> bool:
    """Whether a run has read or counted anything; most runs of the kernel log have not."""
    return bool(result.samples) or any(one.value for one in result.increments)


def timeout(target: Target, seconds: float, how: str) -> ProbeResult:
    """The result of a run that was ended; `how` its process ended."""
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
