"""What people are shown about the targets: one record per target, beside its lines of the snapshot.

In: targets, from the supervisor's thread. Out: immutable records for the web server's threads.
"""

from __future__ import annotations

import math
from typing import NamedTuple, Optional

from nodevitals.engine.lifecycle import Phase
from nodevitals.engine.target import Target

# The states of a target, those that need attention first.
STATES = ("stuck", "overdue", "timeout", "error", "stale", "waiting", "ok", "absent")


class TargetView(NamedTuple):
    """One target at one moment. Times are of the monotonic clock; None: there is none."""

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
