"""The end of the hub's process: within a deadline, also where a part of it does not end.

In: the tasks of the modules, at SIGTERM. Out: their end, or the end of the process with a line that
names what did not end. What is stored is committed: a process that is ended loses none of it.
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
"""From SIGTERM to the end of the process. systemd and Kubernetes end it after 30 s."""
TASKS_SECONDS = 12.0
"""Of these, for the modules: the checks and the stores are closed after them."""
AGAIN_SECONDS = 3.0
"""A task that has lost a cancellation, in a library's code, is canceled again after this. Not
sooner: what a task does as it is canceled takes time."""

_WAITING = ("/selectors.py", "/concurrent/futures/thread.py", "/threading.py")

log = logging.getLogger(__name__)


async def canceled(tasks: Collection[asyncio.Task[Any]], seconds: float) -> None:
    """Cancel tasks until they have ended, for at most so many seconds."""
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
            task.exception()  # of a task that ends, nothing is to be done about it


def _busy_threads() -> dict[str, str]:
    """The threads that the interpreter waits for at its end and that are at work, and their lines:
    neither in an event loop, nor without work, nor waiting for another thread, nor this one.
    """
    frames, found = sys._current_frames(), {}  # noqa: SLF001 # documented, in spite of its name
    for thread in threading.enumerate():
        frame = frames.get(thread.ident or 0)
        if thread.daemon or frame is None or thread is threading.current_thread():
            continue
        file = frame.f_code.co_filename
        if not file.endswith(_WAITING):
            found[thread.name] = f"{os.path.basename(file)}:{frame.f_lineno}"
    return found


class Deadline:
    """Ends the process though a part of it does not end."""

    def __init__(self) -> None:
        self._timer: threading.Timer | None = None
        self.tasks: Mapping[str, asyncio.Task[Any]] = {}
        """The modules, by name."""
        self.stage = "the start"
        """What happens in the event loop."""

    def start(self) -> None:
        """Let the time begin, at the first call. In a thread: the event loop, or the end of the
        interpreter, which waits for other threads, may be what does not end.
        """
        if self._timer is None:
            self._timer = threading.Timer(STOP_SECONDS, self.exit)
            self._timer.name, self._timer.daemon = "deadline", True
            self._timer.start()

    def left(self) -> Sequence[str]:
        """What has not ended: a call that holds the event loop, else modules or what follows them,
        and threads, with the line that each is at.
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
