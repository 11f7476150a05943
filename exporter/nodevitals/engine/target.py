"""One target: its configuration, and its status between runs."""

from __future__ import annotations

import math
import signal
from collections import Counter
from typing import TYPE_CHECKING, Protocol

from nodevitals.engine.lifecycle import Lifecycle
from nodevitals.engine.protocol import TargetSpec
from nodevitals.exposition import Source
from nodevitals.state.history import HistoryProbe
from nodevitals.state.journal import Journal
from nodevitals.state.records import Reply
from nodevitals.wire import ProbeResult, ProtocolError, decode, encode

if TYPE_CHECKING:
    from nodevitals.engine.channel import Worker

# So many messages and a state of the largest size fit into one frame.
MAX_MESSAGES = 32
MAX_INTERRUPTED = 128


class Input(Protocol):
    """The input of a target's runs, which a run may also change."""

    urgent: bool
    """Whether counting a run of this target makes the journal write."""

    def take(self) -> bytes:
        """The state for the run that starts now."""

    def settle(self, result: ProbeResult) -> None:
        """Handle the result of an ended run."""

    def pending(self) -> bool:
        """Whether there is input that should not wait for the next interval."""

    def unsent(self) -> bool:
        """Whether there is input that must not be lost when the agent stops."""


class StateInput:
    """The state that the last run left: in memory, or in the journal when it is persistent."""

    urgent = True

    def __init__(self, journal: Journal, spec: TargetSpec) -> None:
        self._journal = journal
        self._key = spec.key
        self._persistent = spec.persistent
        self._state = b""

    def take(self) -> bytes:
        """The last state that a run returned."""
        return self._journal.saved_state(self._key) if self._persistent else self._state

    def settle(self, result: ProbeResult) -> None:
        """Keep the state where the run returned one."""
        if result.state and self._persistent:
            self._journal.save_state(self._key, result.state)
        elif result.state:
            self._state = result.state

    def pending(self) -> bool:
        """Never: a state waits for the next run."""
        return False

    def unsent(self) -> bool:
        """Never: the journal keeps what must not be lost."""
        return False


class JournalInput:
    """The batches that the history's worker writes."""

    urgent = False  # counting a write must not cause another one

    def __init__(self, journal: Journal) -> None:
        self._journal = journal

    def take(self) -> bytes:
        """The next batch."""
        return encode(self._journal.take())

    def settle(self, result: ProbeResult) -> None:
        """Remove a written batch, or keep it to be written again."""
        try:
            reply = decode(result.state, Reply) if result.outcome == "ok" else None
        except ProtocolError:
            reply = None
        if reply is None:
            self._journal.requeue()
        else:
            self._journal.written(reply)

    def pending(self) -> bool:
        """Whether something waits to be written."""
        return self._journal.pending()

    def unsent(self) -> bool:
        """Whether anything is not written yet."""
        return self._journal.unwritten()


def input_of(spec: TargetSpec, journal: Journal) -> Input:
    """The input of a target."""
    if spec.probe == HistoryProbe.name:
        return JournalInput(journal)
    return StateInput(journal, spec)


class Target:
    """One target: its schedule, its process, and the result of its last run."""

    def __init__(self, spec: TargetSpec, source: Input, spread: float, now: float) -> None:
        self.spec = spec
        self.input = source
        self.lifecycle = Lifecycle(spec.timing, spread, now, spec.start_seconds)
        self.worker: Worker | None = None
        self.shares = False
        """Whether that process may run other targets."""
        self._received: list[tuple[str, bytes]] = []
        self._unanswered: list[tuple[str, bytes]] = []
        self._told: dict[str, bytes] = {}
        """The last message of each sender, of a target that runs at once."""
        self.has_news = False
        """Whether a message that differs from its sender's last one has come since the last run
        began; only of a target that runs at once."""
        self.last: ProbeResult | None = None
        self.last_success: float | None = None
        self.ended_at: float | None = None
        """When the last run ended, by the monotonic clock."""
        self.fresh_until = -math.inf
        self.absences = 0
        """Runs in a row, the last one among them, that found the hardware absent; at most 10."""
        self._timeouts = 0
        self._timeouts_since = 0.0
        self.held = False
        """Whether it is due, and waits for room for another process."""
        self.show_overdue_at = math.inf
        self.interrupted: list[str] = []
        """The devices that runs were ended in, since the last run that returned a result."""
        self.unfinished_at = ""
        self.unfinished_call = ""
        """The device and the call that the run in flight, or the last one, was in when its time
        was nearly over; '' where it has not reported one."""
        self.garbage = ""
        """What was wrong with what its worker sent in this run."""
        self.logged = ""
        """The state that was logged last."""
        self.readings = Source(*spec.key, "readings")
        self.kept = Source(*spec.key, "kept")
        self.status = Source(*spec.key, "status")

    def deliver(self, sender: str, message: bytes) -> None:
        """Keep a probe's message for the next run; where there are too many, the newest ones."""
        self._received = _newest([*self._received, (sender, message)])
        if self.spec.prompt and self._told.get(sender) != message:
            self._told[sender] = message
            self.has_news = True

    def messages(self) -> tuple[bytes, ...]:
        """The messages for the run that starts now, including those of a run without a result."""
        self._unanswered = _newest([*self._unanswered, *self._received])
        self._received = []
        self.has_news = False
        return tuple(message for _, message in self._unanswered)

    def answered(self) -> None:
        """A run has returned a result: its messages need not be delivered again."""
        self._unanswered = []

    def finished(self) -> None:
        """A run has returned a result: nothing that it read hung."""
        self.unfinished_at = self.unfinished_call = ""
        self.interrupted.clear()

    def ended(self, result: ProbeResult) -> None:
        """A run has ended, with a result or without one. One that SIGKILL did not end counts as two
        timeouts: a slow node is not enough for that.
        """
        self.absences = min(self.absences + 1, 10) if result.outcome == "absent" else 0
        if result.outcome not in ("timeout", "stuck"):
            self._timeouts = 0
            return
        if not self._timeouts:
            self._timeouts_since = self.lifecycle.began
        self._timeouts += 2 if result.outcome == "stuck" else 1

    def unanswered_seconds(self, now: float) -> float:
        """Seconds from the start of the first of the last timeouts in a row to the last run; 0
        where there are fewer than two.
        """
        return now - self._timeouts_since if self._timeouts > 1 else 0.0

    def was_interrupted(self) -> bool:
        """Whether the ended run had reported what it was reading; the target keeps that name."""
        place, limit = self.unfinished_at, MAX_INTERRUPTED
        if place and place not in self.interrupted and len(self.interrupted) < limit:
            self.interrupted.append(place)
        return bool(place)

    def delivered_signal(self) -> int:
        """The last signal that the target's process received. A process whose fork server is gone
        got SIGKILL from the kernel.
        """
        worker = self.worker
        return signal.SIGKILL if worker is None or worker.adopted else worker.signalled

    def change(self, spec: TargetSpec, now: float) -> None:
        """Use other settings from the next run on; the state and a hanging process stay."""
        self.spec = spec
        self.lifecycle.change(spec.timing, now)

    @property
    def lease_interval_seconds(self) -> float | None:
        """Time between two runs under a lease; None without one."""
        interval = self.lifecycle.interval_seconds
        return interval if interval < self.spec.timing.interval_seconds else None

    @property
    def failing(self) -> bool:
        """Whether the last run failed: the next one then gets a process that is not shared."""
        return self.last is not None and self.last.outcome not in ("ok", "absent")

    @property
    def absent(self) -> bool:
        """Whether the target's hardware is absent and not expected."""
        return self.last is not None and self.last.outcome == "absent"


def _newest(messages: list[tuple[str, bytes]]) -> list[tuple[str, bytes]]:
    """The messages to keep. A sender that runs every second, as under a lease, loses its own oldest
    messages; a sender that runs every minute loses none by that.
    """
    while len(messages) > MAX_MESSAGES:
        ((most, _),) = Counter(sender for sender, _ in messages).most_common(1)
        messages.remove(next(kept for kept in messages if kept[0] == most))
    return messages
