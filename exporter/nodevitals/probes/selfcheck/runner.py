"""The runner: one thread that runs the checks of this node when they are due, one at a time.

In: the settings, and when each check ran last. Out: finished checks, in a queue. A tool ends with
this thread, and the thread with the worker.
"""

from __future__ import annotations

import queue
import threading
import time
from contextlib import suppress
from typing import Optional

import msgspec

from nodevitals.linux.host import Host, node_name, stable_fraction
from nodevitals.probes.selfcheck.checks import Check, offer
from nodevitals.probes.selfcheck.execution import Execution, Finished
from nodevitals.probes.selfcheck.results import Outcome, worst
from nodevitals.probes.selfcheck.settings import Meter, SelfcheckSettings

LOOK_SECONDS = 10.0
# These confirm a bad result, or detect a repair, sooner than after a day. A tool that hangs uses
# its longest time at each try, and must not use up the budget of other checks.
AGAIN_SECONDS: dict[Optional[Outcome], float] = {
    "slow": 3600.0,
    "failed": 3600.0,
    "harness": 6 * 3600.0,
}
SPREAD_SECONDS = 3600.0
# Reasons that concern only the refused check, not the whole node.
_OF_ONE_CHECK = ("link_busy", "memory_short", "budget")


class Ran(msgspec.Struct, frozen=True):
    """When a check ran last (seconds since the epoch), and its worst outcome."""

    time: float
    outcome: Optional[Outcome]


class FinishedCheck(msgspec.Struct, frozen=True):
    """A check that has ended, or was refused, at `time` (seconds since the epoch)."""

    check: Check
    finished: Finished
    time: float


class SelfcheckRunner:
    """Runs the checks in a thread of its own."""

    def __init__(
        self, settings: SelfcheckSettings, host: Host, meter: Meter, ran: dict[str, Ran]
    ) -> None:
        self._settings = settings
        self._host = host
        self._meter = meter
        self._ran = dict(ran)
        self._execution = Execution(host, settings.gate)
        self._finished: queue.SimpleQueue[FinishedCheck] = queue.SimpleQueue()
        self._first = time.time() + SPREAD_SECONDS * stable_fraction(node_name(), "selfcheck")
        self.offered = offer(host, settings, settings.kinds)
        self.error: Exception | None = None
        """Why the thread has ended."""

    def start(self) -> None:
        """Start the thread."""
        threading.Thread(target=self._loop, name="selfcheck-runner", daemon=True).start()

    def close(self) -> None:
        """End the check that runs."""
        self._execution.closing.set()

    def finished(self) -> list[FinishedCheck]:
        """The checks that have ended since the last call."""
        finished = []
        with suppress(queue.Empty):
            while True:
                finished.append(self._finished.get_nowait())
        return finished

    def _loop(self) -> None:
        try:
            while not self._execution.closing.wait(LOOK_SECONDS):
                self.step()
        except Exception as error:  # noqa: BLE001 - the boundary: the next run raises it
            self.error = error

    def step(self) -> None:
        """Run what is due, up to a reason that concerns the whole node."""
        self.offered = offer(self._host, self._settings, self._settings.kinds)
        for check in self.offered.checks:
            if not self._is_due(check, time.time()):
                continue
            refused = self._run(check)
            if refused and refused not in _OF_ONE_CHECK:
                return

    def _is_due(self, check: Check, now: float) -> bool:
        ran = self._ran.get(check.name)
        if ran is None:
            # A rollout must not start checks on all nodes at once.
            return bool(self._ran) or now >= self._first
        every = self._settings.every
        wait = min(every, AGAIN_SECONDS.get(ran.outcome, every))
        return not 0 <= now - ran.time < wait  # also where the clock was set back

    def _run(self, check: Check) -> str:
        """Run a check. Returns why it was refused, or ''."""
        now = time.time()
        if not self._meter.allows(now, check.seconds):
            finished = Finished((), 0.0, "budget")
        else:
            finished = self._execution.run(check, check.seconds)
        if finished.seconds:
            self._meter.charge(now, finished.seconds)
        if not finished.refused:
            outcome = worst(result.outcome for result in finished.results)
            self._ran[check.name] = Ran(now, outcome)
        self._finished.put(FinishedCheck(check, finished, now))
        return finished.refused
