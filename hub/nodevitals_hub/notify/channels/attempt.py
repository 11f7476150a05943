"""An attempt to send, in a thread of its own.

In: work that blocks. Out: its end, as a future. The thread does not keep the process alive, as
those of an executor do. One that is given up ends at the next byte that comes: a server that sends
one per second has no timeout.
"""

from __future__ import annotations

import asyncio
import ctypes
import threading
from collections.abc import Callable
from contextlib import suppress

from nodevitals_hub.notify.channels.delivery import DeliveryError

Begin = Callable[[], None]


class _GivenUp(BaseException):
    """Nothing waits for this thread any more."""


class Attempt:
    """Work that has begun. `ended` is called in the event loop, once it has ended."""

    def __init__(self, work: Callable[[Begin], None], ended: Callable[[], None]) -> None:
        """`work` is given a function that it calls once it may be given up."""
        self._work, self._ended = work, ended
        self._lock, self._may_end, self._is_settled = threading.Lock(), False, False
        self._loop = asyncio.get_running_loop()
        self.done: asyncio.Future[None] = self._loop.create_future()
        # One that nothing waits for any more.
        self.done.add_done_callback(lambda done: done.cancelled() or done.exception())
        self._thread = threading.Thread(target=self._run, name="notify", daemon=True)
        self._thread.start()

    def give_up(self) -> None:
        """End the thread at its next step in Python; what waits for a byte takes one then."""
        with self._lock:
            if self._may_end and self._thread.ident is not None:
                number = ctypes.c_ulong(self._thread.ident)
                ctypes.pythonapi.PyThreadState_SetAsyncExc(number, ctypes.py_object(_GivenUp))

    def _set(self, may_end: bool) -> None:
        with self._lock:
            self._may_end = may_end

    def _run(self) -> None:
        error: BaseException | None = None
        try:
            try:
                self._work(lambda: self._set(True))
            finally:
                self._set(False)
        except _GivenUp:  # with what was under way: its sockets are closed with it
            error = DeliveryError("given up")
        except BaseException as raised:  # noqa: BLE001 # it is raised where it is awaited
            error = raised
        # It may have been given up in these lines.
        for _ in range(2):
            with suppress(_GivenUp):
                with suppress(RuntimeError):  # the hub has ended
                    self._loop.call_soon_threadsafe(self._settle, error)
                break

    def _settle(self, error: BaseException | None) -> None:
        if self._is_settled:
            return
        self._is_settled = True
        self._ended()
        if not self.done.done():
            self.done.set_result(None) if error is None else self.done.set_exception(error)
