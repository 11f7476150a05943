"""The agent's side of the fork server: a child process, and a non-blocking socket to it.

In: commands, with their descriptors. Out: a call for each reply. The first fork server is a fork
of the agent, made before the agent has a thread or has read its configuration: both share the
memory of all modules, and a worker has none of the agent's secrets. One that replaces it is a new
program, because the agent has threads then.
"""

from __future__ import annotations

import contextlib
import math
import os
import selectors
import signal
import socket
import subprocess
import sys
from collections import deque
from collections.abc import Callable
from typing import Optional, Protocol

import msgspec

from nodevitals.engine.protocol import FromForkServer, Ping
from nodevitals.linux.host import Clock
from nodevitals.wire import ProtocolError, decode, encode

# On a node with overloaded processors or disks, the fork server may get no CPU time for seconds;
# replacing it would lose every run in flight.
SILENCE_SECONDS = 10.0
# A ping is sent only where there is no command: each command has a reply as well.
PING_SECONDS = 5.0
MAX_DATAGRAM_BYTES = 4096


class ServerProcess(Protocol):
    """A child process: the methods common to `subprocess.Popen` and `ForkedProcess`."""

    pid: int
    returncode: Optional[int]
    """The exit status, or a signal's number negated; None before `poll` has found its end."""

    def poll(self) -> Optional[int]:
        """Reap it where it has ended. The exit status."""

    def kill(self) -> None:
        """Send SIGKILL, unless it is reaped."""


class ForkedProcess:
    """A child of os.fork()."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.returncode: Optional[int] = None

    def poll(self) -> Optional[int]:
        """Reap it where it has ended. The exit status."""
        if self.returncode is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            self.returncode = os.waitstatus_to_exitcode(status) if pid else None
        return self.returncode

    def kill(self) -> None:
        """Send SIGKILL, unless it is reaped."""
        if self.poll() is None:
            os.kill(self.pid, signal.SIGKILL)


def fork_server(control: int) -> ServerProcess:
    """Start a fork of this process that serves on the descriptor.

    It is called after the import of all that workers need: imports in the fork server itself would
    write to 9 MiB of memory, which it would then no longer share with the agent.
    """
    from nodevitals.engine.forkserver import become_fork_server, make_ready

    make_ready()
    pid = os.fork()
    if pid == 0:
        become_fork_server(control)
    return ForkedProcess(pid)


def execute_server(control: int) -> ServerProcess:
    """Start a new program that serves on the descriptor."""
    return subprocess.Popen(
        [sys.executable, "-m", "nodevitals.engine.forkserver", str(control)],
        pass_fds=(control,),
        stdin=subprocess.DEVNULL,
        cwd="/",  # `-m` looks for modules there, and its mount could not be unmounted
        start_new_session=True,  # a terminal's ^C is for the agent
    )


class Control:
    """One fork server's socket, from its start to its end."""

    def __init__(
        self,
        sock: socket.socket,
        selector: selectors.BaseSelector,
        clock: Clock,
        on_reply: Callable[[FromForkServer], None],
    ) -> None:
        self._socket = sock
        self._selector = selector
        self._clock = clock
        self._on_reply = on_reply
        # Commands that the socket could not take yet: it holds about 300 unread ones.
        self._unsent: deque[tuple[bytes, list[int]]] = deque()
        self._next_ping = 0.0
        self.open = True
        self.answered = False
        """Whether there was any reply."""
        self.answer_due = math.inf
        """When the fork server has been silent for too long; infinity where nothing is open."""
        sock.setblocking(False)
        selector.register(sock, selectors.EVENT_READ, self._on_event)

    @property
    def wake(self) -> float:
        """When the next ping, or an expected reply, is due."""
        return self._next_ping if self.answer_due == math.inf else self.answer_due

    def ping(self, now: float) -> None:
        """Send a ping, where one is due."""
        if self.answer_due == math.inf and now >= self._next_ping:
            self.send(Ping())

    def send(
        self,
        command: msgspec.Struct,
        descriptors: list[int] | None = None,
        patience_seconds: float = SILENCE_SECONDS,
    ) -> None:
        """Send a command, or queue it. The descriptors are closed when it is sent, or dropped."""
        self._unsent.append((encode(command), descriptors or []))
        self._flush()
        now = self._clock.monotonic()
        self._next_ping = now + PING_SECONDS
        if self.answer_due == math.inf:
            self.answer_due = now + patience_seconds

    def read(self) -> None:
        """Read and report the replies that have arrived."""
        while self.open:
            try:
                data = self._socket.recv(MAX_DATAGRAM_BYTES)
            except OSError:  # nothing more now, or reset because the fork server died
                return
            if not data:
                self.close()
                self.answer_due = min(self.answer_due, self._clock.monotonic() + SILENCE_SECONDS)
                return
            with contextlib.suppress(ProtocolError):
                reply = decode(data, FromForkServer)
                self.answer_due = math.inf
                self.answered = True
                self._on_reply(reply)

    def close(self) -> None:
        """Close the socket, which ends the fork server; drop unsent commands."""
        if self.open:
            self.open = False
            self._selector.unregister(self._socket)
            self._socket.close()
        while self._unsent:
            _close_all(self._unsent.popleft()[1])

    def _on_event(self) -> None:
        self._flush()
        self.read()

    def _flush(self) -> None:
        if not self.open:
            return
        try:
            while self._unsent:
                command, descriptors = self._unsent[0]
                socket.send_fds(self._socket, [command], descriptors)
                self._unsent.popleft()
                _close_all(descriptors)
        except BlockingIOError:
            pass
        except OSError:  # the fork server is dead; `Processes.tick` notices it
            while self._unsent:
                _close_all(self._unsent.popleft()[1])
        events = selectors.EVENT_READ | (selectors.EVENT_WRITE if self._unsent else 0)
        if self._selector.get_key(self._socket).events != events:
            self._selector.modify(self._socket, events, self._on_event)


def _close_all(descriptors: list[int]) -> None:
    for descriptor in descriptors:
        os.close(descriptor)
