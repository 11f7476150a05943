"""Reads the health of many disks, each in a thread of its own, a few at a time.

In: the disks with the call that reads each, and what earlier processes have read. Out: the last
result of each. A call that hangs in the kernel delays only its own disk: its thread stays, and no
other is started for this disk until it ends. A thread costs some kilobytes; a process per disk
would cost megabytes.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Mapping
from typing import Optional

import msgspec

from nodevitals.probes.disks.health import Health, HealthError

Call = Callable[[], Optional[Health]]
# A low limit, because many disks may share a controller.
_AT_ONCE = 2
_STACK_BYTES = 256 * 1024
_STALE_INTERVALS = 3


class Slot(msgspec.Struct):
    """The known health of one disk; times are monotonic seconds since the boot."""

    due: float = 0.0
    health: Optional[Health] = None
    read_at: float = 0.0
    reason: str = ""
    """Why the last call failed; '' if it did not."""
    message: str = ""


class Reader:
    """The slots of all disks; `known` are those of earlier processes of this boot. `hung_seconds`:
    the time after which a call counts as hung; a hung call no longer counts against the limit of
    simultaneous calls.
    """

    def __init__(
        self, interval_seconds: float, hung_seconds: float, known: Mapping[str, Slot] | None = None
    ) -> None:
        self._interval = interval_seconds
        self._hung = hung_seconds
        self._slots = dict(known or {})
        self._begun: dict[str, float] = {}
        """When the call in flight began, by disk."""
        self._changed = threading.Condition()

    @property
    def busy(self) -> bool:
        """Whether a call is in flight."""
        with self._changed:
            return bool(self._begun)

    def known(self) -> dict[str, Slot]:
        """The slots as they are now, for a later process."""
        with self._changed:
            return {name: msgspec.structs.replace(slot) for name, slot in self._slots.items()}

    def refresh(self, calls: Mapping[str, Call], until: float) -> None:
        """Start the calls that are due, and wait for all in flight, at most until this monotonic
        time. Slower calls continue, and a later run has their results.
        """
        with self._changed:
            for name in [*self._slots]:
                if name not in calls and name not in self._begun:
                    del self._slots[name]
            now = time.monotonic()
            slots = {name: self._slots.setdefault(name, Slot()) for name in calls}
            due = [
                name for name, slot in slots.items() if name not in self._begun and slot.due <= now
            ]
            # If a round takes longer than the interval, the first disks are due again before the
            # last ones were read: so the disk that has waited longest comes first.
            due.sort(key=lambda name: slots[name].due)
            while self._start(calls, due) and time.monotonic() < until:
                self._changed.wait(max(0.0, until - time.monotonic()))

    def _start(self, calls: Mapping[str, Call], due: list[str]) -> bool:
        """Start the calls that may start now. Returns whether a call is in flight that does
        not hang.
        """
        now = time.monotonic()
        running = sum(now - began < self._hung for began in self._begun.values())
        while due and running < _AT_ONCE:
            name = due.pop(0)
            self._begun[name], self._slots[name].due = now, now + self._interval
            running += 1
            self._run(name, calls[name])
        return running > 0

    def _run(self, name: str, call: Call) -> None:
        threading.stack_size(_STACK_BYTES)
        try:
            threading.Thread(target=self._work, args=(name, call), daemon=True).start()
        except RuntimeError as error:  # no memory, or a limit of processes
            self._ended(name, HealthError("io_error", str(error)))

    def _work(self, name: str, call: Call) -> None:
        health: Optional[Health] = None
        failure: Optional[HealthError] = None
        try:
            health = call()
        except HealthError as error:
            failure = error
        except Exception as error:  # noqa: BLE001 - a mistake here must not look like a disk that hangs
            failure = HealthError("io_error", f"{type(error).__name__}: {error}")
        with self._changed:
            self._ended(name, failure)
            if failure is None:
                slot = self._slots[name]
                slot.health, slot.read_at = health, time.monotonic()
            self._changed.notify_all()

    def _ended(self, name: str, failure: Optional[HealthError]) -> None:
        """Record the end of a call. Its slot exists: the slot of a call in flight is not
        removed.
        """
        del self._begun[name]
        slot = self._slots[name]
        slot.reason, slot.message = (failure.reason, failure.message) if failure else ("", "")

    def health(self, name: str) -> Optional[Health]:
        """The last health; None if that is too old, or the disk has no SMART data."""
        with self._changed:
            slot = self._slots[name]
            stale = time.monotonic() - slot.read_at > _STALE_INTERVALS * self._interval
            return None if stale else slot.health

    def problem(self, name: str) -> Optional[HealthError]:
        """Why the last call failed or hangs; None if it did not."""
        with self._changed:
            seconds = time.monotonic() - self._begun.get(name, math.inf)
            if seconds >= self._hung:
                return HealthError("hung", f"{name}: no answer for {seconds:.0f} s")
            slot = self._slots[name]
            return HealthError(slot.reason, slot.message) if slot.reason else None
