"""The process that forks, kills and reaps workers. The first one is a fork of the agent; one that
replaces it is `python -m nodevitals.engine.forkserver FD`.

It has one thread, has imported every module that a worker needs, opens no file but /proc, and
exchanges datagrams with the agent on descriptor FD. No other process reaps workers, so no process
id is reused unnoticed: a worker's group is signalled while the worker is still unreaped. When the
agent ends, the fork server ends everything that it started within a second, and exits.
"""

from __future__ import annotations

import contextlib
import gc
import math
import os
import select
import signal
import socket
import sys
import time
import traceback
from collections import deque
from typing import NoReturn

from nodevitals.catalogue import preload, preload_of_site
from nodevitals.engine.protocol import (
    Exited,
    FromForkServer,
    Kill,
    Ping,
    Pong,
    Signalled,
    Spawn,
    Started,
    ToForkServer,
)
from nodevitals.engine.worker import become_worker, prepare
from nodevitals.linux.process import (
    FORK_SERVER,
    become_subreaper,
    children,
    load_average,
    processes,
    set_name,
    set_nice,
)
from nodevitals.wire import decode, encode

# A probe starts one tool at a time; this many processes in one session is a fork bomb.
MAX_PROCESSES_PER_WORKER = 64
# Share of the time that the search for such workers may take while the node gets more threads.
STORM_SHARE = 0.05
LOOK_SECONDS = 0.05
# A worker is watched closely for this time after its start and after a signal. An older one is a
# resident between runs, or it is in a call that the agent's deadline ends.
YOUNG_SECONDS = 10.0
LOOK_SHARE = 0.1
"""Of a worker's age: how long until the next look at it. One that is forked now and then, and waits
for other targets, would cost 200 looks."""
LOOK_AT_RESIDENTS_SECONDS = 10.0
# Kernels without CONFIG_PROC_CHILDREN have no /proc/PID/task/TID/children: the fork server walks
# /proc to find orphans, which takes 5 microseconds per process, within this share of the time.
WALK_SHARE = 0.0005
END_SECONDS = 1.0
MAX_DATAGRAM_BYTES = 4096
# More descriptors than the agent has open at its start.
MAX_DESCRIPTORS = 256
# The fork server needs little CPU time, but at once, also while a fork bomb uses all processors.
NICE = -10


class ForkServer:
    """Workers by number and by process id, and the loop that serves them."""

    def __init__(self, control: socket.socket) -> None:
        # CPython 3.9 to 3.13 ignore the flags of recv_fds: MSG_DONTWAIT has no effect there.
        control.setblocking(False)
        self._control = control
        self._wakeup_read, wakeup_write = os.pipe()
        os.set_blocking(self._wakeup_read, False)
        os.set_blocking(wakeup_write, False)
        signal.set_wakeup_fd(wakeup_write, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        self._pids: dict[int, int] = {}
        self._workers: dict[int, int] = {}
        self._notes: dict[int, str] = {}
        self._unsent: deque[bytes] = deque()
        self._calm_threads: int | None = None
        """Fewest threads of the node since workers are watched closely, or since a walk."""
        self._storm_allowed_at = 0.0
        self._watched_from: dict[int, float] = {}
        self._walk_allowed_at = 0.0
        self._must_walk = False
        self._look_for_orphans = False
        self._ending = False

    def serve(self) -> None:
        """Serve until the agent closes its end."""
        poller = select.poll()
        poller.register(self._control, select.POLLIN)
        poller.register(self._wakeup_read, select.POLLIN)
        while not self._ending:
            watching = bool(self._pids) or self._look_for_orphans
            wait = self._look_seconds()
            if wait >= LOOK_AT_RESIDENTS_SECONDS:
                self._calm_threads = None
            poller.modify(self._control, select.POLLIN | (select.POLLOUT if self._unsent else 0))
            poller.poll(wait * 1000 if watching else None)
            self._drain_wakeups()
            self._reap()
            self._receive()
            self._flush()
            if watching:
                self._watch()
        self._end_everything()

    def _look_seconds(self) -> float:
        now = time.monotonic()
        youngest = now - max(self._watched_from.values(), default=-math.inf)
        if youngest < YOUNG_SECONDS:
            return max(LOOK_SECONDS, youngest * LOOK_SHARE)
        if self._look_for_orphans:
            allowed = self._walk_allowed_at - now if self._must_walk else 0.0
            return max(LOOK_SECONDS, allowed)
        return LOOK_AT_RESIDENTS_SECONDS

    def _receive(self) -> None:
        while not self._ending:
            try:
                data, descriptors, _, _ = socket.recv_fds(self._control, MAX_DATAGRAM_BYTES, 2)
            except BlockingIOError:
                return
            except OSError:
                data, descriptors = b"", []
            if not data:
                self._ending = True
                return
            self._execute(decode(data, ToForkServer), descriptors)
            for descriptor in descriptors:
                os.close(descriptor)

    def _execute(self, message: ToForkServer, descriptors: list[int]) -> None:
        if isinstance(message, Spawn) and len(descriptors) == 2:
            self._fork(message.worker, *descriptors)
        elif isinstance(message, Spawn):  # the kernel drops what does not fit into our table
            self._send(Exited(message.worker, 127, "not started: too many open files"))
        elif isinstance(message, Kill):
            self._signal_group(message.worker, message.signal)
            if message.worker in self._watched_from:
                self._watched_from[message.worker] = time.monotonic()
            self._send(Signalled(message.worker, message.signal))
        elif isinstance(message, Ping):
            self._send(Pong(len(self._pids)))

    def _fork(self, worker: int, channel: int, stderr: int) -> None:
        server_pid = os.getpid()
        try:
            pid = os.fork()
        except OSError as error:  # out of processes or memory: the node's problem, reported as such
            self._send(Exited(worker, 127, f"cannot fork: {error.strerror}"))
            return
        if pid == 0:
            become_worker(channel, stderr, server_pid)
        self._watched_from[worker] = time.monotonic()
        self._pids[worker] = pid
        self._workers[pid] = worker
        self._send(Started(worker, pid))

    def _signal_group(self, worker: int, number: int) -> None:
        pid = self._pids.get(worker)
        if pid is None:
            return
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(pid, number)
        # Before its setsid the child is still in our own group, where killpg finds nothing.
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, number)

    def _reap(self) -> None:
        while True:
            try:
                info = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
            except ChildProcessError:
                return
            if info is None:
                return
            worker = self._workers.pop(info.si_pid, None)
            if worker is not None:
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.killpg(info.si_pid, signal.SIGKILL)  # processes that it left in its group
                # If its process id is the newest of the node, it has started no process.
                self._look_for_orphans |= load_average().last_pid != info.si_pid
            os.waitid(os.P_PID, info.si_pid, os.WEXITED | os.WNOHANG)
            if worker is not None:
                del self._pids[worker], self._watched_from[worker]
                killed = info.si_code != os.CLD_EXITED
                status = -info.si_status if killed else info.si_status
                self._send(Exited(worker, status, self._notes.pop(worker, "")))

    def _watch(self) -> None:
        """Kill orphans of ended workers, and workers with too many processes."""
        storm = self._is_storm()
        own = children() if self._look_for_orphans else []
        self._must_walk = own is None
        if own is not None:
            self._kill_orphans(own)
        if storm or (own is None and time.monotonic() >= self._walk_allowed_at):
            self._walk()

    def _is_storm(self) -> bool:
        """Whether the node got so many threads that one worker may have too many processes: only
        then is a walk of /proc worth its cost.
        """
        threads = load_average().threads
        if self._calm_threads is None or threads < self._calm_threads:
            self._calm_threads = threads
        storm = threads > self._calm_threads + MAX_PROCESSES_PER_WORKER
        if not storm or time.monotonic() < self._storm_allowed_at:
            return False
        self._calm_threads = threads
        return True

    def _walk(self) -> None:
        """Look at every process of the node. This is costly, so it is rare where all is well."""
        started = time.monotonic()
        sessions: dict[int, int] = {}
        own = []
        for process in processes():
            sessions[process.session] = sessions.get(process.session, 0) + 1
            if process.parent == os.getpid():
                own.append(process.pid)
        self._kill_orphans(own)
        for worker, pid in self._pids.items():
            if sessions.get(pid, 0) > MAX_PROCESSES_PER_WORKER:
                self._notes[worker] = f"killed for having {sessions[pid]} processes"
                self._signal_group(worker, signal.SIGKILL)
        took = time.monotonic() - started
        self._walk_allowed_at = time.monotonic() + max(1.0, took / WALK_SHARE)
        self._storm_allowed_at = time.monotonic() + took / STORM_SHARE

    def _kill_orphans(self, own: list[int]) -> None:
        orphans = [pid for pid in own if pid not in self._workers]
        for pid in orphans:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        # Look again until no orphan is left: each may leave children of its own.
        self._look_for_orphans = bool(orphans)

    def _end_everything(self) -> None:
        """Send SIGTERM, wait up to a second, send SIGKILL. A process that does not end then is
        stuck in the kernel, with PDEATHSIG pending.
        """
        for worker in list(self._pids):
            self._signal_group(worker, signal.SIGTERM)
        deadline = time.monotonic() + END_SECONDS
        while self._pids and time.monotonic() < deadline:
            time.sleep(0.01)
            self._reap()
        for worker in list(self._pids):
            self._signal_group(worker, signal.SIGKILL)
        time.sleep(0.02 if self._pids else 0)
        self._reap()
        self._walk()
        # The fork server inherits the children of killed processes: without this loop they would
        # outlive it as children of init.
        deadline = time.monotonic() + END_SECONDS
        while self._look_for_orphans and time.monotonic() < deadline:
            time.sleep(0.01)
            self._reap()
            self._walk()

    def _drain_wakeups(self) -> None:
        with contextlib.suppress(BlockingIOError):
            os.read(self._wakeup_read, 4096)

    def _send(self, message: FromForkServer) -> None:
        self._unsent.append(encode(message))
        self._flush()

    def _flush(self) -> None:
        """Send what the socket takes: the agent may be stopped, or have 300 unread messages."""
        try:
            while self._unsent:
                self._control.send(self._unsent[0])
                self._unsent.popleft()
        except BlockingIOError:
            pass
        except OSError:  # the agent is gone; the next receive notices it
            self._unsent.clear()


def make_ready() -> None:
    """Import what workers need, and keep the garbage collector from writing to the memory that
    the workers share.
    """
    preload()
    prepare()
    gc.collect()
    gc.freeze()


def become_fork_server(control: int) -> NoReturn:
    """Turn a new fork of the agent into its fork server; never returns. The agent must have called
    `make_ready` and have had one thread.
    """
    status = 1
    try:
        os.setsid()  # a terminal's ^C is for the agent
        os.chdir("/")  # the working directory's mount could not be unmounted
        signal.set_wakeup_fd(-1)
        null = os.open(os.devnull, os.O_RDONLY)
        os.dup2(null, 0)
        os.closerange(3, control)
        os.closerange(control + 1, max(MAX_DESCRIPTORS, null + 1))
        _serve(control, ready=True)
        status = 0
    except BaseException:
        traceback.print_exc()  # `finally` ends the process before Python prints it
        raise
    finally:
        # Does not run the agent's exit hooks, nor flush its buffers.
        os._exit(status)


def _serve(control: int, ready: bool = False) -> None:
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)  # it ends when the agent closes the socket
    become_subreaper()
    set_name(FORK_SERVER)
    set_nice(NICE)
    if not ready:
        make_ready()
    if preload_of_site():
        gc.collect()
        gc.freeze()
    ForkServer(socket.socket(fileno=control)).serve()


def main() -> NoReturn:
    """Serve on the inherited descriptor that the only argument gives."""
    _serve(int(sys.argv[1]))
    os._exit(0)


if __name__ == "__main__":
    main()
