"""Runs an attempt to send in its own thread, which does not keep the process alive.

In: a function that blocks. Out: its end, as a future. asyncio's own threads are not used, because a
name server that does not answer would block them for other work.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from contextlib import suppress


class Attempt:
    """Work that has begun. `ended` is called in the event loop after the work has ended."""

    def __init__(self, work: Callable[[], None], ended: Callable[[], None]) -> None:
        self._work, self._ended = work, ended
        self._loop = asyncio.get_running_loop()
        self.done: asyncio.Future[None] = self._loop.create_future()
        # Retrieve the result: asyncio logs an error that nothing has awaited.
        self.done.add_done_callback(lambda done: done.cancelled() or done.exception())
        threading.Thread(target=self._run, name="notify", daemon=True).start()

    def _run(self) -> None:
        error: BaseException | None = None
        try:
            self._work()
        except BaseException as raised:  # noqa: BLE001 # raised again where it is awaited
            error = raised
        with suppress(RuntimeError):  # the hub has ended
            self._loop.call_soon_threadsafe(self._settle, error)

    def _settle(self, error: BaseException | None) -> None:
        self._ended()
        if not self.done.done():
            self.done.set_result(None) if error is None else self.done.set_exception(error)
