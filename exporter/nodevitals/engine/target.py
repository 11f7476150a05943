"""One target: as configured, and as it stands between its runs."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import msgspec

from nodevitals.config import Timing
from nodevitals.engine.lifecycle import Lifecycle
from nodevitals.exposition import Source
from nodevitals.probe import ProbeResult

if TYPE_CHECKING:
    from nodevitals.engine.channel import Worker

MAX_LETTERS = 100


class TargetSpec(msgspec.Struct, frozen=True):
    """One target as configured. Equal specs are the same target across a reload."""

    probe: str
    target: str
    settings: bytes
    timing: Timing
    resident: bool
    remembers: bool
    start_seconds: float
    required: bool
    families: tuple[str, ...]

    @property
    def key(self) -> tuple[str, str]:
        """What names it in every label and lock."""
        return self.probe, self.target


class Target:
    """One target: its schedule, its process, and what its last run said."""

    def __init__(self, spec: TargetSpec, spread: float, now: float) -> None:
        self.spec = spec
        self.lifecycle = Lifecycle(spec.timing, spread, now, spec.start_seconds)
        self.worker: Worker | None = None
        self.carry = b""
        self.inbox: list[bytes] = []
        self.unanswered: list[bytes] = []
        """Letters that a run was given; it has not answered."""
        self.last: ProbeResult | None = None
        self.last_success: float | None = None
        self.fresh_until = -math.inf
        self.fault = ""
        self.said = ""
        self.readings = Source(*spec.key, "readings")
        self.kept = Source(*spec.key, "kept")
        self.status = Source(*spec.key, "status")

    def deliver(self, letter: bytes) -> None:
        """Keep a letter for the next run; of too many the newest."""
        self.inbox = [*self.inbox, letter][-MAX_LETTERS:]

    def letters(self) -> tuple[bytes, ...]:
        """What to hand to the run that begins now."""
        self.unanswered = [*self.unanswered, *self.inbox][-MAX_LETTERS:]
        self.inbox = []
        return tuple(self.unanswered)

    def change(self, spec: TargetSpec, now: float) -> None:
        """Take other settings: the next run has them; what is known, or hangs, stays as it is."""
        self.spec = spec
        self.lifecycle.change(spec.timing, now)
