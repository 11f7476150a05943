"""The paths that a job names: is there a file system that answers.

Each is looked at in a process of its own, which may hang and is left behind then: a process in
uninterruptible sleep cannot be waited for.
"""

from __future__ import annotations

import os
import select
import signal
import time
from collections.abc import Sequence
from contextlib import suppress

from nodevitals.commands.doctor.findings import OK, PROBLEM, Finding, printable

_TEXT_BYTES = 512


Started = dict[str, tuple[int, int]]
"""By path the process that looks at it, and the end of its pipe."""


def start(paths: Sequence[str], write: bool) -> Started:
    """Start to look at paths. It forks: call it before threads are started."""
    return {path: _start(path, write) for path in dict.fromkeys(paths)}


def place_findings(started: Started, deadline: float) -> list[Finding]:
    """A finding per path."""
    return [_finding(path, *one, deadline) for path, one in started.items()]


def _start(path: str, write: bool) -> tuple[int, int]:
    """A child that looks at a path and writes what is wrong; its pid and the end to read."""
    read_end, write_end = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(read_end)
        # It may be left behind: a reader of the command's output must not wait for it.
        with open(os.devnull, "r+b", buffering=0) as nothing:
            for descriptor in (0, 1, 2):
                os.dup2(nothing.fileno(), descriptor)
        os.write(write_end, _look(path, write).encode("utf-8", "replace")[:_TEXT_BYTES])
        os._exit(0)
    os.close(write_end)
    return pid, read_end


def _look(path: str, write: bool) -> str:
    """What is wrong with a path; `ok` where nothing is."""
    try:
        with os.scandir(path) as entries:
            next(entries, None)
        os.statvfs(path)
    except OSError as error:
        return error.strerror or "cannot be listed"
    if write and not os.access(path, os.W_OK | os.X_OK):
        return "no permission to write, or read-only"
    return "ok"


def _finding(path: str, pid: int, read_end: int, deadline: float) -> Finding:
    ready, _, _ = select.select([read_end], [], [], max(deadline - time.monotonic(), 0.05))
    text = os.read(read_end, _TEXT_BYTES).decode("utf-8", "replace") if ready else ""
    os.close(read_end)
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)
    with suppress(ChildProcessError):
        os.waitpid(pid, 0 if ready else os.WNOHANG)
    name = printable(path, 160)
    if text == "ok":
        return Finding("paths", OK, f"{name} answers")
    problem = text or "does not answer: its file server or the network to it hangs"
    return Finding("paths", PROBLEM, printable(f"{name}: {problem}"), f"findmnt -T {name}")
