"""Ends the hub's process within a deadline, even if a part of it does not end.

In: the tasks of the modules, at SIGTERM. Out: their end, or the end of the process and a log line
that names what did not end. Stored data is committed, so that it is not lost.
"""

from __future__ import annotations

import asyncio
import logging
import os
import sys
import threading
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from nodevitals.logs import QueuedHandler

STOP_SECONDS = 20.0
"""Longest time from SIGTERM to the end of the process. systemd and Kubernetes kill after 30 s."""
TASKS_SECONDS = 12.0
"""Part of this for the modules; the checks and the stores are closed after them."""
AGAIN_SECONDS = 3.0
"""A task that ignored a cancellation, in a library's code, is canceled again after this time. Not
sooner, because the clean-up of a canceled task takes time."""

_WAITING = ("/selectors.py", "/concurrent/futures/thread.py", "/threading.py")

log = logging.getLogger(__name__)


async def canceled(tasks: Collection[asyncio.Task[Any]], seconds: float) -> None:
    """Cancel tasks until they have ended, for at most `seconds`."""
    loop = asyncio.get_running_loop()
    end = loop.time() + seconds
    left = {task for task in tasks if not task.done()}
    while left and loop.time() < end:
        for task in left:
            task.cancel()
        wait = min(AGAIN_SECONDS, end - loop.time())
        _, left = await asyncio.wait(left, timeout=max(0.0, wait))
    for task in tasks:
        if task.done() and not task.cancelled():
            task.exception()  # retrieved, so that asyncio does not log it


def _busy_threads() -> dict[str, str]:
    """The busy threads that the interpreter waits for at its end, each with its current line. Not
    this thread, and no thread in an event loop, without work, or waiting for another thread.
    """
    frames, places = sys._current_frames(), {}  # noqa: SLF001 # documented, in spite of its name
    for thread in threading.enumerate():
        frame = frames.get(thread.ident or 0)
        if thread.daemon or frame is None or thread is threading.current_thread():
            continue
        file = frame.f_code.co_filename
        if not file.endswith(_WAITING):
            places[thread.name] = f"{os.path.basename(file)}:{frame.f_lineno}"
    return places


class Deadline:
    """Ends the process even if a part of it does not end."""

    def __init__(self) -> None:
        self._timer: threading.Timer | None = None
        self.tasks: Mapping[str, asyncio.Task[Any]] = {}
        """The tasks of the modules, by name."""
        self.stage = "the start"
        """The current step in the event loop."""

    def start(self) -> None:
        """Start the timer at the first call. It is a thread, because the event loop may hang, or
        the end of the interpreter, which waits for other threads.
        """
        if self._timer is None:
            self._timer = threading.Timer(STOP_SECONDS, self.exit)
            self._timer.name, self._timer.daemon = "deadline", True
            self._timer.start()

    def left(self) -> Sequence[str]:
        """What has not ended: a call that blocks the event loop, else the modules or the current
        step, and busy threads with their current lines.
        """
        busy = _busy_threads()
        if held := busy.pop(threading.main_thread().name, ""):
            return [f"the event loop ({held})"]
        modules = [name for name, task in self.tasks.items() if not task.done()]
        stages = [self.stage] if self.stage else []
        return [*(modules or stages), *(f"{name} ({line})" for name, line in busy.items())]

    def exit(self) -> None:
        """End the process, with status 1."""
        left = ", ".join(self.left()) or "the interpreter"
        log.error("stopping: %s did not end; the process ends all the same", left)
        for handler in logging.getLogger().handlers:
            if isinstance(handler, QueuedHandler):
                handler.drain(0.2)
        os._exit(1)
