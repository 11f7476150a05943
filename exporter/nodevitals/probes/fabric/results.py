"""What the runner reports of finished tests, and the lines of the agent's log on orders."""

from __future__ import annotations

from typing import Literal, Optional, Union, get_args

import msgspec

from nodevitals.probe import Readings
from nodevitals.probes.fabric.orders import OrderStatus
from nodevitals.probes.fabric.report import Report
from nodevitals.probes.fabric.settings import TestSettings

MAX_REFUSALS = 10
REFUSAL_SECONDS = 60.0

OrderOutcome = Literal["ok", "failed", "skipped", "canceled", "lease", "refused"]
ORDER_OUTCOMES: tuple[OrderOutcome, ...] = get_args(OrderOutcome)


class StartedTest(msgspec.Struct, frozen=True, kw_only=True):
    """A test that this node started at `time` (seconds since the epoch). `skipped` is one of SKIPS
    where it was not started or was stopped, else ''; `seconds` is how long the tool ran here, and
    `bytes` the most that it moved.
    """

    test: TestSettings
    source: str
    peer: str
    time: float
    seconds: float = 0.0
    bytes: float = 0.0
    skipped: str = ""
    report: Optional[Report] = None
    ordered: bool = False
    """Whether the hub ordered it."""
    forced: bool = False
    """Whether it ran though the node may have been in use."""


class ServedTest(msgspec.Struct, frozen=True, kw_only=True):
    """A test of a peer's, how long its server side ran here, and the most that it moved."""

    test: TestSettings
    seconds: float
    bytes: float


class FinishedOrder(msgspec.Struct, frozen=True, kw_only=True):
    """An order that has ended here, or was refused; `text` is its line in the log."""

    outcome: OrderOutcome
    text: str


class AcceptedOrder(msgspec.Struct, frozen=True, kw_only=True):
    """An order that was accepted here; `text` is its line in the log."""

    text: str


FinishedTest = Union[StartedTest, ServedTest, AcceptedOrder, FinishedOrder]


def outcome_of(status: OrderStatus) -> OrderOutcome:
    """The outcome of an order that is done."""
    if status.skipped in ("canceled", "lease"):
        return "canceled" if status.skipped == "canceled" else "lease"
    if status.skipped:
        return "skipped"
    return "failed" if any(one.outcome != "ok" for one in status.reports) else "ok"


class OrderLog:
    """Logs orders that have ended or were refused; of refusals at most MAX_REFUSALS in
    REFUSAL_SECONDS, and how many were left out.
    """

    def __init__(self) -> None:
        self._since = 0.0
        self._refused = 0

    def note(self, readings: Readings, order: FinishedOrder, now: float) -> None:
        """Log one order."""
        if order.outcome != "refused":
            readings.note(order.text, warning=order.outcome in ("failed", "lease"))
            return
        if not self._refused or now - self._since > REFUSAL_SECONDS:
            if self._refused > MAX_REFUSALS:
                more = self._refused - MAX_REFUSALS
                readings.note(f"{more} more orders were refused since", warning=True)
            self._since, self._refused = now, 0
        self._refused += 1
        if self._refused <= MAX_REFUSALS:
            readings.note(order.text, warning=True)
