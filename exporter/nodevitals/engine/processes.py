"""The agent's side of its processes: the fork server, its replacement, and every worker.

The agent starts workers here; callbacks report their results and their end. Nothing blocks. A
fork server that dies, or does not reply for ten seconds, is killed and replaced: its workers get
the kernel's PDEATHSIG, and the agent adopts and reaps them. A worker that cannot die is kept here
until it ends, so that no second process is started for its target.
"""

from __future__ import annotations

import contextlib
import errno
import logging
import math
import os
import selectors
import signal
import socket
import time
from collections.abc import Callable, Iterator
from itertools import islice
from typing import NamedTuple, Optional

from nodevitals.engine.channel import Worker
from nodevitals.engine.forkserver_client import Control, ServerProcess, execute_server, fork_server
from nodevitals.engine.protocol import (
    FromForkServer,
    Kill,
    Ping,
    Pong,
    Signalled,
    Spawn,
    Started,
)
from nodevitals.linux.host import Clock
from nodevitals.linux.process import become_subreaper, children, processes
from nodevitals.wire import Wanted

# Targets with equal intervals run together again only after one interval; until then each idle
# process costs megabytes.
IDLE_SECONDS = 2.0
MAX_IDLE = 16

LOOK_SECONDS = 0.25
# The fork server's imports may come from a slow disk.
FIRST_ANSWER_SECONDS = 30.0
SWEEP_SECONDS = 10.0
# Longest wait before a restart: a fork server that ended before its first reply, as in a broken
# installation, would end again.
LONGEST_RESTART_SECONDS = 30.0
# More targets than that wait: processes that compete for CPU time and memory end no sooner. A run
# takes milliseconds, so a process that is older than a second waits for something else.
MAX_UNSTARTED = 16
MAX_YOUNG = 64
YOUNG_SECONDS = 1.0
# Time to reap a killed fork server; one that hangs in the kernel is left to init.
KILL_SECONDS = 1.0
LOST = "lost with the fork server"

log = logging.getLogger(__name__)


class _Idle(NamedTuple):
    worker: Worker
    until: float
    """When the worker is ended, unless it is the one that was used last."""


class IdleWorkers:
    """Worker processes that wait for the next target: most runs take less time than a fork.

    In: workers after a successful run of a probe that leaves nothing behind. Out: a worker for the
    next run. One worker waits without a limit; others, which served runs at the same time, for a
    few seconds. A process runs one target at a time, so a hang delays only that target. `end` sends
    SIGKILL to a worker: an idle one has nothing to lose.
    """

    def __init__(self, end: Callable[[Worker], None]) -> None:
        self._kill = end
        self._waiting: list[_Idle] = []
        """In the order of use: the last one was used last."""

    @property
    def wake(self) -> float:
        """When `expire` is due next."""
        return self._waiting[0].until if len(self._waiting) > 1 else math.inf

    def put(self, worker: Worker, now: float) -> None:
        """Add a worker that waits for a job."""
        self._listen(worker)
        if worker.open and not worker.adopted and len(self._waiting) < MAX_IDLE:
            self._waiting.append(_Idle(worker, now + IDLE_SECONDS))
        else:
            self._discard(worker)

    def take(self) -> Optional[Worker]:
        """Take the worker that was used last of those alive; None where no worker waits."""
        self._waiting = [idle for idle in self._waiting if idle.worker.open]
        return self._waiting.pop().worker if self._waiting else None

    def expire(self, now: float) -> None:
        """End the workers that have waited too long, except the one that was used last."""
        for idle in self._waiting[:-1]:
            if idle.until <= now:
                self._discard(idle.worker)

    def forget(self, worker: Worker) -> None:
        """Remove a worker that has ended, or whose fork server has."""
        self._waiting = [idle for idle in self._waiting if idle.worker is not worker]

    def _listen(self, worker: Worker) -> None:
        """Replace the callbacks: an idle worker's messages and its end concern no target."""
        worker.on_result = lambda _: self._discard(worker)
        worker.on_garbage = lambda _: self._discard(worker)
        worker.on_exit = lambda _: None
        worker.stderr_tail()  # drops the output of the last target

    def _discard(self, worker: Worker) -> None:
        """End a worker that is not needed, or that sent something without a run: its memory may be
        damaged.
        """
        self.forget(worker)
        self._kill(worker)


class Processes:
    """Every process the agent is responsible for. Used by the supervisor's thread alone."""

    def __init__(self, selector: selectors.BaseSelector, clock: Clock) -> None:
        self._selector = selector
        self._clock = clock
        self._workers: dict[int, Worker] = {}
        self._idle = IdleWorkers(lambda worker: self.signal(worker, signal.SIGKILL))
        self.on_wanted: Callable[[Wanted], None] = lambda _: None
        """Called when a probe that is open has something to read."""
        self._next_number = 1
        self._server: ServerProcess | None = None
        self._control: Control | None = None
        self._former: list[ServerProcess] = []
        self._sweep_until = 0.0
        self._start_at = 0.0
        self._silent_starts = 0
        self.restarts = 0

    def start(self, fork: bool = False) -> None:
        """Start the fork server. Returns at once; commands wait in its socket. `fork`: start it as
        a fork of this process, which must have one thread and shares its memory with all workers.
        """
        become_subreaper()
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            self._server = (fork_server if fork else execute_server)(theirs.fileno())
        self._control = Control(ours, self._selector, self._clock, self._receive)
        self._control.send(Ping(), patience_seconds=FIRST_ANSWER_SECONDS)

    def spawn(self, reuse: bool = False) -> Worker:
        """A worker for a job: a new one, or with `reuse` an idle one where there is one.

        Raises OSError when the agent is out of descriptors or waits to start a fork server.
        """
        worker = self._idle.take() if reuse else None
        return worker or self._new_worker(self._clock.monotonic())

    def _new_worker(self, now: float) -> Worker:
        if self._control is None or not self._control.open:
            raise OSError(errno.ESRCH, "no fork server")
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        stderr_read, stderr_write = os.pipe()
        # Non-blocking for the writer: output beyond 64 KiB is lost and blocks no process.
        os.set_blocking(stderr_write, False)
        try:
            worker = Worker(self._next_number, self._selector, ours, stderr_read, now)
        except OSError:
            os.close(stderr_read)
            os.close(stderr_write)
            raise
        worker.on_wanted = lambda wanted: self.on_wanted(wanted)
        self._next_number += 1
        self._workers[worker.number] = worker
        self._control.send(Spawn(worker.number), [theirs.detach(), stderr_write])
        return worker

    def release(self, worker: Worker) -> None:
        """Keep a worker for another target after its run, or end it."""
        self._idle.put(worker, self._clock.monotonic())

    def room(self, now: float) -> float:
        """When another worker may start: now, or when a young one is old enough; infinity: only
        when a worker has started or ended. Workers that hang get older and delay no others.
        """
        newest = list(islice(reversed(self._workers.values()), MAX_YOUNG))
        if sum(worker.pid is None for worker in newest) >= MAX_UNSTARTED:
            return math.inf
        if len(newest) < MAX_YOUNG:
            return now
        return max(now, newest[-1].requested + YOUNG_SECONDS)

    def signal(self, worker: Worker, number: int) -> None:
        """Signal a worker's process group."""
        if worker.adopted and worker.pid is not None:
            for deliver in (os.killpg, os.kill):  # an unreaped child: its id was not reused
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    deliver(worker.pid, number)
            worker.signalled = number
        elif self._control is not None and self._control.open:
            self._control.send(Kill(worker.number, number))

    def count(self) -> int:
        """Number of workers that are not reaped."""
        return len(self._workers)

    @property
    def unanswered(self) -> bool:
        """Whether the fork server has yet to reply to a command."""
        return self._control is not None and self._control.answer_due < math.inf

    @property
    def wake(self) -> float:
        """When `tick` is due next."""
        if self._server is None or self._control is None:
            return self._start_at
        adopted = any(worker.adopted for worker in self._workers.values())
        wake = min(self._control.wake, self._idle.wake)
        if not self._control.open or adopted or self._former:
            return min(wake, self._clock.monotonic() + LOOK_SECONDS)
        return wake

    def tick(self) -> None:
        """Call when `wake` is due, after everything that has arrived was read: an agent that was
        stopped itself must read the replies before it judges the fork server unresponsive.
        """
        now = self._clock.monotonic()
        server, control = self._server, self._control
        if server is None or control is None:
            if now >= self._start_at:
                self._start_again(now)
        elif server.poll() is not None:
            self._replace(f"ended with status {server.returncode}")
        elif now > control.answer_due:
            self._replace("does not reply")
        elif control.open:
            control.ping(now)
        self._idle.expire(now)
        self._reap_adopted(now)

    def stop(self) -> None:
        """Make the fork server end everything, by closing the agent's end of the socket."""
        if self._control is not None:
            self._control.close()
        for worker in self._workers.values():
            worker.close_channel()

    def wait(self, seconds: float) -> None:
        """After `stop`, wait until the fork server has ended everything; then kill it."""
        if not self._fork_server_ends(seconds):
            self._kill_fork_server()
            self._fork_server_ends(KILL_SECONDS)

    def _fork_server_ends(self, seconds: float) -> bool:
        deadline = time.monotonic() + seconds
        while self._server is not None and self._server.poll() is None:
            if time.monotonic() > deadline:
                return False
            time.sleep(0.005)
        return True

    def _kill_fork_server(self) -> None:
        if self._server is not None:
            with contextlib.suppress(ProcessLookupError):
                self._server.kill()

    def _receive(self, message: FromForkServer) -> None:
        if isinstance(message, Pong):
            return
        worker = self._workers.get(message.worker)
        if worker is None:
            return
        if isinstance(message, Started):
            worker.pid = message.pid
        elif isinstance(message, Signalled):
            worker.signalled = message.signal
        else:
            self._ended(worker, message.note or describe_exit(message.status))

    def _ended(self, worker: Worker, how: str) -> None:
        worker.drain()
        del self._workers[worker.number]
        worker.on_exit(how)
        worker.close()
        self._idle.forget(worker)

    def _replace(self, why: str) -> None:
        control = self._control
        answered = control is not None and control.answered
        self._silent_starts = 0 if answered else self._silent_starts + 1
        wait = min(LONGEST_RESTART_SECONDS, 2.0**self._silent_starts - 1)
        log.error("fork server %s; starting another%s", why, f" in {wait:g} s" if wait else "")
        self.restarts += 1
        self._kill_fork_server()
        if control is not None:
            control.read()  # replies that it sent before
            control.close()
        if self._server is not None:
            self._former.append(self._server)
            self._server = self._control = None
        for worker in list(self._workers.values()):
            worker.adopted = True
            self._idle.forget(worker)
            if worker.pid is None:
                self._ended(worker, LOST)
        self._sweep_until = self._clock.monotonic() + SWEEP_SECONDS
        self._start_at = self._clock.monotonic() + wait
        if not wait:
            self._start_again(self._start_at)

    def _start_again(self, now: float) -> None:
        try:
            self.start()
        except OSError as error:  # out of processes, memory or descriptors: the node's problem
            self._start_at = now + 1.0
            log.error("cannot start the fork server: %s", error.strerror)

    def _reap_adopted(self, now: float) -> None:
        """Reap workers of ended fork servers, and kill the processes that those workers left."""
        self._former = [server for server in self._former if server.poll() is None]
        for worker in [worker for worker in self._workers.values() if worker.adopted]:
            if worker.pid is None or _reap(worker.pid):
                self._ended(worker, LOST)
        if now < self._sweep_until:
            for pid in self._unknown_children():
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.kill(pid, signal.SIGKILL)
                _reap(pid)

    def _unknown_children(self) -> Iterator[int]:
        known = {worker.pid for worker in self._workers.values()}
        known.update(server.pid for server in (self._server, *self._former) if server is not None)
        own = children()
        if own is None:
            try:
                own = [process.pid for process in processes() if process.parent == os.getpid()]
            except OSError:  # no descriptor left: the next call finds them
                own = []
        yield from (pid for pid in own if pid not in known)


def _reap(pid: int) -> bool:
    """Whether the child is gone: it is reaped now, or it is not a child of this process."""
    try:
        return os.waitpid(pid, os.WNOHANG)[0] == pid
    except ChildProcessError:
        return not _alive(pid)


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def describe_exit(status: int) -> str:
    """How a process ended, as text. `status`: an exit status, or a signal's number negated."""
    if status < 0:
        with contextlib.suppress(ValueError):
            return f"killed by {signal.Signals(-status).name}"
    return f"ended with status {status}"
