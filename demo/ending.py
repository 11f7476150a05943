"""The end of the demo: by itself, by ^C, by a signal, by an error; no process is left.

Standard library only: it is imported before a signal may arrive.
"""

from __future__ import annotations

import ctypes
import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

_PR_SET_CHILD_SUBREAPER = 36
_ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_WAIT_SECONDS = 10.0


class DemoError(Exception):
    """Why the demo cannot run here, and what to do, in one line."""


class Signal(BaseException):
    """A signal that ends the demo."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number
        self.name = signal.Signals(number).name


@contextmanager
def complete() -> Iterator[None]:
    """Raise Signal for the first signal that ends the demo, and ignore further ones: at the end,
    kill what this process has started and not ended.
    """
    # What a child has started becomes a child of this process when that child ends.
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    for number in _ENDING:
        signal.signal(number, _end)
    try:
        yield
    finally:
        _ignore()
        kill_children()


def _end(number: int, _: object) -> None:
    _ignore()
    raise Signal(number)


def _ignore() -> None:
    for number in _ENDING:
        signal.signal(number, signal.SIG_IGN)


def kill_children() -> None:
    """Kill children until there are none: each one's children become ours."""
    deadline = time.monotonic() + _WAIT_SECONDS
    while (found := _children()) and time.monotonic() < deadline:
        for child in found:
            with suppress(ProcessLookupError):
                os.kill(child, signal.SIGKILL)
        with suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        time.sleep(0.02)


def _children() -> list[int]:
    tasks = Path(f"/proc/{os.getpid()}/task").iterdir()
    return [int(word) for task in tasks for word in (task / "children").read_text().split()]
