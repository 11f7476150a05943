"""Loads the configuration in a process with a deadline, at most one at a time.

In: the paths of the files. Out: one call with the loaded configuration or its errors, after at most
`LOAD_SECONDS`. A process that SIGKILL does not end hangs in the kernel; it is not replaced until it
ends.
"""

from __future__ import annotations

import math
import signal
from collections.abc import Callable

from nodevitals.engine.channel import Worker
from nodevitals.engine.processes import Processes
from nodevitals.engine.protocol import Files, Load, Loaded
from nodevitals.linux.host import Clock
from nodevitals.wire import one_line

LOAD_SECONDS = 10.0
REAP_SECONDS = 1.0


def _hangs(files: Files) -> str:
    return f"{files}: no result within {LOAD_SECONDS:g} s: is the file system hung?"


class Loader:
    """Loads in a worker of the fork server."""

    def __init__(self, processes: Processes, clock: Clock) -> None:
        self._processes = processes
        self._clock = clock
        self._files = Files()
        self._worker: Worker | None = None
        self._done: Callable[[Loaded], None] | None = None
        self._limit = math.inf
        self.stuck = False
        """Whether a process was not ended by SIGKILL."""

    @property
    def busy(self) -> bool:
        """Whether a load is in progress, or its process has not ended yet."""
        return self._worker is not None and not self.stuck

    @property
    def wake(self) -> float:
        """When `tick` is due next."""
        return self._limit

    def start(self, files: Files, done: Callable[[Loaded], None]) -> None:
        """Load these files, then call `done`. Must not be called while `busy`."""
        if self._worker is not None:
            text = "the process of the last load still hangs; another is started when it ends"
            done(Loaded(errors=(f"{files}: {text}",)))
            return
        try:
            worker = self._processes.spawn()
        except OSError as error:
            done(Loaded(errors=(f"cannot start a process to load {files}: {error.strerror}",)))
            return
        self._files, self._worker, self._done = files, worker, done
        self._limit = self._clock.monotonic() + LOAD_SECONDS
        worker.replies = Loaded
        worker.on_result = self._finish
        worker.on_garbage = lambda what: self._fail(f"{self._files}: {what}")
        worker.on_exit = self._exited
        worker.send(Load(files))

    def tick(self) -> None:
        """Call when `wake` is due."""
        if self._clock.monotonic() < self._limit:
            return
        worker = self._worker
        if self._done is not None:
            self._fail(_hangs(self._files))
        elif worker is not None and not worker.adopted and worker.signalled != signal.SIGKILL:
            self._limit = self._clock.monotonic() + REAP_SECONDS  # not delivered yet
        else:
            self.stuck, self._limit = True, math.inf

    def _fail(self, text: str) -> None:
        self._finish(Loaded(errors=(text,)))

    def _finish(self, loaded: Loaded) -> None:
        """Report the outcome, and end the process, which has nothing more to do."""
        done, self._done = self._done, None
        if done is None:
            return
        self._limit = self._clock.monotonic() + REAP_SECONDS
        if self._worker is not None:
            self._processes.signal(self._worker, signal.SIGKILL)
        done(loaded)

    def _exited(self, how: str) -> None:
        worker, self._worker = self._worker, None
        stderr = worker.stderr_tail() if worker is not None and self._done is not None else ""
        self._fail(one_line(f"{self._files}: the process that reads it {how}; {stderr}"))
        self.stuck, self._limit = False, math.inf
