"""Work that may hang in the kernel, in processes of their own, which may be left behind.

In: functions. Out: the bytes that they return. A thread in uninterruptible sleep would keep the
whole process from ending: its parent, a prolog, would wait for it.
"""

from __future__ import annotations

import os
import select
import signal
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import NamedTuple

_CHUNK_BYTES = 1 << 16
MAX_BYTES = 1 << 22


class Child(NamedTuple):
    """A process, and the end of its pipe."""

    pid: int
    read_end: int


def start(work: Callable[[], Iterable[bytes]], seconds: float) -> Child:
    """Start a process that writes what `work` returns, and ends after so many seconds. It forks:
    call it before threads are started.
    """
    read_end, write_end = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            # Its own end, also where this process is killed.
            signal.signal(signal.SIGALRM, signal.SIG_DFL)
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            signal.setitimer(signal.ITIMER_REAL, seconds)
            os.close(read_end)
            # It may be left behind: a reader of the command's output must not wait for it.
            with open(os.devnull, "r+b", buffering=0) as nothing:
                for descriptor in (0, 1, 2):
                    os.dup2(nothing.fileno(), descriptor)
            with open(write_end, "wb", buffering=0) as pipe:
                pipe.writelines(work())
        finally:
            os._exit(0)  # whatever was raised: there must not be a second preflight
    os.close(write_end)
    return Child(pid, read_end)


def answer(child: Child, deadline: float) -> bytes:
    """What it wrote by then. It is ended; one that hangs in the kernel is left behind."""
    parts: list[bytes] = []
    size, ended = 0, False
    while not ended and size < MAX_BYTES:
        left = max(deadline - time.monotonic(), 0.0 if parts else 0.05)
        if not select.select([child.read_end], [], [], left)[0]:
            break
        part = os.read(child.read_end, _CHUNK_BYTES)
        parts.append(part)
        size += len(part)
        ended = not part
    os.close(child.read_end)
    with suppress(ProcessLookupError):
        os.kill(child.pid, signal.SIGKILL)
    with suppress(ChildProcessError):
        os.waitpid(child.pid, 0 if ended else os.WNOHANG)
    return b"".join(parts)
