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
    """When it is ended, unless it is the only one."""


class IdleWorkers:
    """`end` sends SIGKILL to a worker: it holds nothing."""

    def __init__(self, end: Callable[[Worker], None]) -> None:
        self._end = end
        self._waiting: list[_Idle] = []
        """The one that was used last comes last."""

    @property
    def wake(self) -> float:
        """When `expire` is due next."""
        return self._waiting[0].until if len(self._waiting) > 1 else math.inf

    def put(self, worker: Worker, now: float) -> None:
        """Take in a worker that waits for a job."""
        worker.on_result = lambda _: self._discard(worker)
        worker.on_garbage = lambda _: self._discard(worker)
        worker.on_exit = lambda _: self.forget(worker)
        worker.stderr_tail()  # not of the next target
        if worker.open and not worker.adopted and len(self._waiting) < MAX_IDLE:
            self._waiting.append(_Idle(worker, now + IDLE_SECONDS))
        else:
            self._end(worker)

    def take(self) -> Optional[Worker]:
        """The worker that was used last, and is still alive; None where none waits."""
        while self._waiting:
            worker = self._waiting.pop().worker
            if worker.open:
                return worker
        return None

    def expire(self, now: float) -> None:
        """End those that were not needed for a while, but for one."""
        while len(self._waiting) > 1 and self._waiting[0].until <= now:
            self._end(self._waiting.pop(0).worker)

    def forget(self, worker: Worker) -> None:
        """It has ended, or its fork server has."""
        self._waiting = [one for one in self._waiting if one.worker is not worker]

    def _discard(self, worker: Worker) -> None:
        """It sends something without a run: its memory may be damaged."""
        self.forget(worker)
        self._end(worker)
