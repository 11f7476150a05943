"""Worker processes between two targets: most runs take less time than a fork.

In: workers whose run has ended well, of probes that leave nothing behind. Out: a worker for the
next run. One waits for as long as it takes; more, which served runs at the same time, only for a
few seconds. A process runs one target at a time, so one that hangs holds up only that one.

One of them is the keeper: it keeps the probes of all residents that are shared, between their runs
and those of others. Where it is busy for a second, or ends, another one becomes the keeper, and
opens these probes anew.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple, Optional

from nodevitals.engine.channel import Worker

# Targets with equal intervals meet again after one interval; a process costs megabytes meanwhile.
IDLE_SECONDS = 2.0
MAX_IDLE = 16
# For the run of another target in the keeper: what takes longer may hang.
KEEPER_PATIENCE_SECONDS = 1.0


class _Idle(NamedTuple):
    worker: Worker
    until: float
    """When it is ended, unless it is the keeper, or the only one where there is none."""


class IdleWorkers:
    """`end` sends SIGKILL to a worker: it holds nothing that is lost. `keeper_lost` is called when
    there is no keeper any more.
    """

    def __init__(
        self, end: Callable[[Worker], None], keeper_lost: Callable[[], None] = lambda: None
    ) -> None:
        self._kill = end
        self._keeper_lost = keeper_lost
        self._waiting: list[_Idle] = []
        """The one that was used last comes last."""
        self._keeper: Optional[Worker] = None
        self._keeper_taken_at = -math.inf
        self._former: list[Worker] = []
        """Those that were the keeper and are busy: they end with their run."""

    @property
    def wake(self) -> float:
        """When `expire` is due next."""
        spare = self._spare()
        return spare[0].until if spare else math.inf

    def put(self, worker: Worker, now: float) -> None:
        """Take in a worker that waits for a job."""
        self._listen(worker)
        usable = worker.open and not worker.adopted and worker not in self._former
        if usable and len(self._waiting) < MAX_IDLE:
            self._waiting.append(_Idle(worker, now + IDLE_SECONDS))
        else:
            self._discard(worker)

    def end(self, worker: Worker) -> None:
        """End a worker that could wait for a job."""
        self._listen(worker)
        self._discard(worker)

    def take(self, now: float) -> Optional[Worker]:
        """The keeper, or the worker that was used last, that is still alive; None where none
        waits.
        """
        self._waiting = [one for one in self._waiting if one.worker.open]
        found = [one for one in self._waiting if one.worker is self._keeper] or self._waiting[-1:]
        for one in found:
            self._waiting.remove(one)
            if one.worker is self._keeper:
                self._keeper_taken_at = now
            return one.worker
        return None

    def keeper_free(self, now: float) -> float:
        """When a target may start whose probe is kept open: now, or when the keeper has been busy
        for so long that there will be another one.
        """
        if self._keeper is None or any(one.worker is self._keeper for one in self._waiting):
            return now
        return max(now, self._keeper_taken_at + KEEPER_PATIENCE_SECONDS)

    def shared_free(self, now: float) -> float:
        """When a target may start that any shared process may run: now, or infinity until the
        keeper is free again.
        """
        return now if self._waiting or self._keeper is None else math.inf

    def keep_in(self, worker: Worker, now: float) -> None:
        """This worker, which was taken or is new, is the keeper from now on."""
        if worker is not self._keeper:
            self.dismiss_keeper()
            self._keeper = worker
        self._keeper_taken_at = now

    def dismiss_keeper(self) -> None:
        """End the keeper, where it is busy after its run: it holds what is not needed."""
        keeper = self._keeper
        if keeper is None:
            return
        if any(one.worker is keeper for one in self._waiting):
            self._discard(keeper)
            return
        self._former.append(keeper)
        self._keeper = None
        self._keeper_lost()

    def expire(self, now: float) -> None:
        """End those that were not needed for a while, but for one."""
        for one in self._spare():
            if one.until <= now:
                self._discard(one.worker)

    def forget(self, worker: Worker) -> None:
        """It has ended, or its fork server has."""
        self._waiting = [one for one in self._waiting if one.worker is not worker]
        self._former = [one for one in self._former if one is not worker]
        if worker is self._keeper:
            self._keeper = None
            self._keeper_lost()

    def _listen(self, worker: Worker) -> None:
        """Expect nothing more of it: what it sends and its end are of no target."""
        worker.on_result = lambda _: self._discard(worker)
        worker.on_garbage = lambda _: self._discard(worker)
        worker.on_exit = lambda _: None
        worker.stderr_tail()  # not of the next target

    def _spare(self) -> list[_Idle]:
        """Those that end after a while: all but the keeper, or but the one that was used last."""
        if self._keeper is None:
            return self._waiting[:-1]
        return [one for one in self._waiting if one.worker is not self._keeper]

    def _discard(self, worker: Worker) -> None:
        """End one: it is not needed, or sends something without a run, as its memory may be
        damaged.
        """
        self.forget(worker)
        self._kill(worker)
