"""Worker processes between two targets: most runs take less time than a fork.

In: workers whose run has ended well, of probes that leave nothing behind. Out: a worker for the
next run. One waits for as long as it takes; more, which served runs at the same time, only for a
few seconds. A process runs one target at a time, so one that hangs holds up only that one.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple, Optional

from nodevitals.engine.channel import Worker

# Targets with equal intervals meet again after one interval; a process costs megabytes meanwhile.
IDLE_SECONDS = 2.0
MAX_IDLE = 16


class _Idle(NamedTuple):
    worker: Worker
    until: float
    """When it is ended, unless it is the one that was used last."""


class IdleWorkers:
    """`end` sends SIGKILL to a worker: it holds nothing that is lost."""

    def __init__(self, end: Callable[[Worker], None]) -> None:
        self._kill = end
        self._waiting: list[_Idle] = []
        """The one that was used last comes last."""

    @property
    def wake(self) -> float:
        """When `expire` is due next."""
        return self._waiting[0].until if len(self._waiting) > 1 else math.inf

    def put(self, worker: Worker, now: float) -> None:
        """Take in a worker that waits for a job."""
        self._listen(worker)
        if worker.open and not worker.adopted and len(self._waiting) < MAX_IDLE:
            self._waiting.append(_Idle(worker, now + IDLE_SECONDS))
        else:
            self._discard(worker)

    def take(self) -> Optional[Worker]:
        """The worker that was used last and is still alive; None where none waits."""
        self._waiting = [idle for idle in self._waiting if idle.worker.open]
        return self._waiting.pop().worker if self._waiting else None

    def expire(self, now: float) -> None:
        """End those that were not needed for a while, but for the one that was used last."""
        for idle in self._waiting[:-1]:
            if idle.until <= now:
                self._discard(idle.worker)

    def forget(self, worker: Worker) -> None:
        """It has ended, or its fork server has."""
        self._waiting = [idle for idle in self._waiting if idle.worker is not worker]

    def _listen(self, worker: Worker) -> None:
        """Expect nothing more of it: what it sends and its end are of no target."""
        worker.on_result = lambda _: self._discard(worker)
        worker.on_garbage = lambda _: self._discard(worker)
        worker.on_exit = lambda _: None
        worker.stderr_tail()  # not of the next target

    def _discard(self, worker: Worker) -> None:
        """End one: it is not needed, or sends something without a run, as its memory may be
        damaged.
        """
        self.forget(worker)
        self._kill(worker)
