"""The fork server as a child of the agent.

The first one is a fork of the agent, before it has a thread or has read its configuration: both
share the pages of all modules, and a worker has none of the agent's secrets. Another one, which
replaces it, is a new program: the agent has threads then.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from typing import Optional, Protocol


class ServerProcess(Protocol):
    """A child: what `subprocess.Popen` and `ForkedProcess` have in common."""

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
    """A fork of this process that serves on the descriptor.

    What workers need is imported before: what the fork server imported itself would be written into
    9 MiB of pages that it then no longer shares with the agent.
    """
    from nodevitals.engine.forkserver import become_fork_server, make_ready

    make_ready()
    pid = os.fork()
    if pid == 0:
        become_fork_server(control)
    return ForkedProcess(pid)


def execute_server(control: int) -> ServerProcess:
    """A new program that serves on the descriptor."""
    return subprocess.Popen(
        [sys.executable, "-m", "nodevitals.engine.forkserver", str(control)],
        pass_fds=(control,),
        stdin=subprocess.DEVNULL,
        cwd="/",  # `-m` looks there for modules, and a mount we stand on cannot be undone
        start_new_session=True,  # a terminal's ^C is for the agent
    )
