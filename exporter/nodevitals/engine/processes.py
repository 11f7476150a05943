"""The agent's side of its processes: the fork server, its replacement, and every worker.

The agent starts workers here; callbacks report their results and their end. Nothing blocks. A
fork server that dies, or does not reply for two seconds, is killed and replaced: its workers get
the kernel's PDEATHSIG, the agent adopts and reaps them, and one that cannot die stays known here
until it does, so that nothing is ever started on top of it.
"""

from __future__ import annotations

import contextlib
import errno
import logging
import os
import selectors
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator

import msgspec

from nodevitals.engine.channel import Worker
from nodevitals.engine.protocol import (
    FromForkServer,
    Kill,
    Ping,
    Pong,
    Spawn,
    Started,
)
from nodevitals.linux.host import Clock
from nodevitals.linux.process import become_subreaper, children, processes
from nodevitals.wire import ProtocolError, decode, encode

SILENCE_SECONDS = 2.0
# With nothing to do for it; each command to it is a ping as well.
PING_SECONDS = 5.0
LOOK_SECONDS = 0.25
# Importing from a cold or slow disk takes its time.
FIRST_ANSWER_SECONDS = 30.0
SWEEP_SECONDS = 10.0
# A fork server that ends before it has answered once would end again: a broken installation.
LONGEST_RESTART_SECONDS = 30.0
MAX_DATAGRAM_BYTES = 4096
LOST = "lost with the fork server"

log = logging.getLogger(__name__)


class Processes:
    """Every process the agent is responsible for. Used by the supervisor's thread alone."""

    def __init__(self, selector: selectors.BaseSelector, clock: Clock) -> None:
        self._selector = selector
        self._clock = clock
        self._workers: dict[int, Worker] = {}
        self._next_number = 1
        self._server: subprocess.Popen[bytes] | None = None
        self._control: socket.socket | None = None
        self._former: list[subprocess.Popen[bytes]] = []
        self._next_ping = 0.0
        self._answer_due: float | None = None
        self._sweep_until = 0.0
        self._start_at = 0.0
        self._silent_starts = 0
        self._answered = False
        self.restarts = 0

    def start(self) -> None:
        """Start the fork server. Returns at once; commands wait in its socket."""
        become_subreaper()
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        ours.setblocking(False)
        with theirs:
            self._server = subprocess.Popen(
                [sys.executable, "-m", "nodevitals.engine.forkserver", str(theirs.fileno())],
                pass_fds=(theirs.fileno(),),
                stdin=subprocess.DEVNULL,
                cwd="/",  # `-m` looks there for modules, and a mount we stand on cannot be undone
                start_new_session=True,  # a terminal's ^C is for the agent
            )
        self._control = ours
        self._selector.register(ours, selectors.EVENT_READ, self._read_control)
        self._answered = False
        self._command(Ping())
        self._answer_due = self._clock.monotonic() + FIRST_ANSWER_SECONDS

    def spawn(self, job: msgspec.Struct) -> Worker:
        """A new worker with its job.

        Raises OSError when the agent is out of descriptors or waits to start a fork server.
        """
        if self._control is None:
            raise OSError(errno.ESRCH, "no fork server")
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        stderr_read, stderr_write = os.pipe()
        # Non-blocking for the writer: a flood is lost at 64 KiB and blocks no process.
        os.set_blocking(stderr_write, False)
        worker = Worker(self._next_number, self._selector, ours, stderr_read)
        self._next_number += 1
        self._workers[worker.number] = worker
        self._command(Spawn(worker.number), [theirs.fileno(), stderr_write])
        theirs.close()
        os.close(stderr_write)
        worker.send(job)
        return worker

    def signal(self, worker: Worker, number: int) -> None:
        """Signal a worker's process group."""
        if worker.adopted and worker.pid is not None:
            for deliver in (os.killpg, os.kill):  # unreaped and ours, so the id is still its own
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    deliver(worker.pid, number)
        else:
            self._command(Kill(worker.number, number))

    def count(self) -> int:
        """Workers that are not reaped."""
        return len(self._workers)

    @property
    def wake(self) -> float:
        """When `tick` is due next."""
        if self._server is None:
            return self._start_at
        due = self._next_ping if self._answer_due is None else self._answer_due
        adopted = any(worker.adopted for worker in self._workers.values())
        if self._control is None or adopted or self._former:
            due = min(due, self._clock.monotonic() + LOOK_SECONDS)
        return due

    def tick(self) -> None:
        """Call when `wake` is due, after what has arrived was read: an agent that was stopped
        itself must read the replies before it calls the fork server unresponsive.
        """
        now = self._clock.monotonic()
        server = self._server
        if server is None:
            if now >= self._start_at:
                self._start_again(now)
        elif server.poll() is not None:
            self._replace(f"ended with status {server.returncode}")
        elif self._answer_due is not None and now > self._answer_due:
            self._replace("does not reply")
        elif self._answer_due is None and now >= self._next_ping:
            self._command(Ping())
        self._reap_adopted(now)

    def stop(self) -> None:
        """Tell the fork server to end everything, by closing our end."""
        if self._control is not None:
            self._selector.unregister(self._control)
            self._control.close()
            self._control = None
        for worker in self._workers.values():
            worker.close_channel()

    def wait(self, seconds: float) -> None:
        """After `stop`, wait for the fork server to end everything; after so long, kill it."""
        deadline = time.monotonic() + seconds
        while self._server is not None and self._server.poll() is None:
            if time.monotonic() > deadline:
                self._kill_fork_server()
                return
            time.sleep(0.005)

    def _kill_fork_server(self) -> None:
        if self._server is not None:
            with contextlib.suppress(ProcessLookupError):
                self._server.kill()

    def _command(self, message: msgspec.Struct, descriptors: list[int] | None = None) -> None:
        """Send a command, with a ping where it has no reply of its own."""
        if self._control is None:
            return
        # Refused only by a fork server that is dead, or has 200 KiB of small messages unread:
        # the next tick replaces it and ends its workers.
        with contextlib.suppress(OSError):
            socket.send_fds(self._control, [encode(message)], descriptors or [])
            if isinstance(message, Kill):
                socket.send_fds(self._control, [encode(Ping())], [])
        now = self._clock.monotonic()
        self._next_ping = now + PING_SECONDS
        if self._answer_due is None:
            self._answer_due = now + SILENCE_SECONDS

    def _read_control(self) -> None:
        control = self._control
        while control is not None:
            try:
                data = control.recv(MAX_DATAGRAM_BYTES)
            except OSError:  # nothing more now, or reset because it died, which the tick sees
                return
            if not data:
                self._selector.unregister(control)
                control.close()
                self._control = None
                return
            with contextlib.suppress(ProtocolError):
                self._receive(decode(data, FromForkServer))

    def _receive(self, message: FromForkServer) -> None:
        self._answer_due = None
        self._answered = True
        if isinstance(message, Pong):
            return
        worker = self._workers.get(message.worker)
        if worker is None:
            return
        if isinstance(message, Started):
            worker.pid = message.pid
        else:
            self._ended(worker, message.note or describe_exit(message.status))

    def _ended(self, worker: Worker, how: str) -> None:
        worker.drain()
        del self._workers[worker.number]
        worker.on_exit(how)
        worker.close()

    def _replace(self, why: str) -> None:
        self._silent_starts = 0 if self._answered else self._silent_starts + 1
        wait = min(LONGEST_RESTART_SECONDS, 2.0**self._silent_starts - 1)
        log.error("fork server %s; starting another%s", why, f" in {wait:g} s" if wait else "")
        self.restarts += 1
        self._kill_fork_server()
        self._read_control()  # what it has reported before
        if self._control is not None:
            self._selector.unregister(self._control)
            self._control.close()
            self._control = None
        if self._server is not None:
            self._former.append(self._server)
            self._server = None
        for worker in list(self._workers.values()):
            worker.adopted = True
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
        """Reap workers of fork servers that are gone, and kill what those left behind."""
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
            own = [process.pid for process in processes() if process.parent == os.getpid()]
        yield from (pid for pid in own if pid not in known)


def _reap(pid: int) -> bool:
    """Whether the child is gone: reaped now, or not (or no longer) a child."""
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
    """How a process ended, for people: its exit status, or a signal's number negated."""
    if status < 0:
        with contextlib.suppress(ValueError):
            return f"killed by {signal.Signals(-status).name}"
    return f"ended with status {status}"
