"""What a check that has not ended does now, or waits for."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from itertools import takewhile
from typing import NamedTuple

from nodevitals.checks.model import Check
from nodevitals_hub.checks.check_procedure import left_of
from nodevitals_hub.checks.execution import Execution
from nodevitals_hub.checks.runners import PlannedRun
from nodevitals_hub.store.check_store import Issued, Unfinished


class Progress(NamedTuple):
    """The work of a check that has not ended."""

    running: Sequence[tuple[PlannedRun, Issued]] = ()
    """The runs that have begun and have no result."""
    seconds_left: float | None = None
    """Until its time limit; None before it starts."""
    before: Sequence[str] = ()
    """The earlier checks that have some of its nodes, where it waits."""


def waiting(check: Check, others: Iterable[Check]) -> Progress:
    """The progress of a queued check; `others` are those that run, then the queue in its order."""
    nodes = set(check.request.nodes)
    before = takewhile(lambda other: other.id != check.id, others)
    return Progress(before=[one.id for one in before if not nodes.isdisjoint(one.request.nodes)])


def running(check: Check, execution: Execution | None) -> Progress:
    """The progress of a check that has started; without an execution, it begins or ends."""
    runs = list(execution.running.values()) if execution else ()
    return Progress(running=runs, seconds_left=left_of(Unfinished(check), time.time()))
