"""The agent's side of loading the configuration: a process with a deadline, at most one at a time.

In: the paths of the files. Out: one call with what was loaded or why not, `LOAD_SECONDS` later at
most. A process that SIGKILL does not end hangs in the kernel, and is not replaced until it ends.
"""

from __future__ import annotations

import math
import os
import select
import signal
import time
from collections.abc import Callable
from typing import NoReturn, cast

from nodevitals.engine.channel import Worker
from nodevitals.engine.processes import Processes
from nodevitals.engine.protocol import Files, Load, Loaded
from nodevitals.linux.host import Clock
from nodevitals.linux.process import die_with_parent
from nodevitals.wire import FrameReader, ProtocolError, decode, one_line

LOAD_SECONDS = 10.0
REAP_SECONDS = 1.0
READ_BYTES = 256 * 1024


def _hangs(files: Files) -> str:
    return f"{files}: no result within {LOAD_SECONDS:g} s: is the file system hung?"


class Loader:
    """Loads in a worker of the fork server, for an agent that runs."""

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
        """Whether a load is under way, or its process is about to end."""
        return self._worker is not None and not self.stuck

    @property
    def wake(self) -> float:
        """When `tick` is due next."""
        return self._limit

    def start(self, files: Files, done: Callable[[Loaded], None]) -> None:
        """Load these files and call `done`. Not while it is busy."""
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
        """Report, and end the process: it has nothing more to do."""
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


def load_in_child(files: Files, wake: int, stopping: Callable[[], bool]) -> Loaded | None:
    """Load in a child of this process, before there is a fork server, and before any thread. None
    where `stopping` is true, which is looked up whenever the descriptor `wake` is readable.
    """
    read, write = os.pipe()
    parent = os.getpid()
    pid = os.fork()
    if pid == 0:
        os.close(read)
        _serve_parent(files, parent, write)
    os.close(write)
    try:
        loaded = _received(read, wake, stopping)
        if loaded is None and not stopping():
            loaded = Loaded(errors=(_hangs(files),))
        return loaded
    finally:
        os.close(read)
        os.kill(pid, signal.SIGKILL)  # unreaped, so the id is still its own
        _reap(pid)


def _serve_parent(files: Files, parent: int, write: int) -> NoReturn:
    try:
        signal.set_wakeup_fd(-1)
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, signal.SIG_DFL)
        die_with_parent(signal.SIGKILL)
        if os.getppid() == parent:
            from nodevitals.engine.loading import framed, load  # the agent itself never needs it

            with open(write, "wb") as pipe:
                pipe.write(framed(load(files)))
    finally:
        os._exit(1)


def _received(read: int, wake: int, stopping: Callable[[], bool]) -> Loaded | None:
    """The child's reply; None at the deadline, or when the agent stops."""
    deadline = time.monotonic() + LOAD_SECONDS
    reader = FrameReader()
    while not stopping() and time.monotonic() < deadline:
        ready, _, _ = select.select([read, wake], [], [], deadline - time.monotonic())
        if wake in ready:
            os.read(wake, READ_BYTES)
        if read not in ready:
            continue
        data = os.read(read, READ_BYTES)
        try:
            for body in reader.feed(data):
                return cast("Loaded", decode(body, Loaded))
        except ProtocolError as error:
            return Loaded(errors=(str(error),))
        if not data:
            return Loaded(errors=("the process that loads the configuration ended",))
    return None


def _reap(pid: int) -> None:
    """Wait for its end, but not for one that hangs in the kernel."""
    until = time.monotonic() + REAP_SECONDS
    while os.waitpid(pid, os.WNOHANG)[0] == 0 and time.monotonic() < until:
        time.sleep(0.001)
