"""Lines of the agent's log on orders that have ended or were refused.

In: finished orders. Out: notes; of refusals a limited number, and how many were left out.
"""

from __future__ import annotations

from nodevitals.probe import Readings
from nodevitals.probes.fabric.results import FinishedOrder

MAX_REFUSALS = 10
REFUSAL_SECONDS = 60.0


class OrderLog:
    """Logs at most MAX_REFUSALS refusals in REFUSAL_SECONDS."""

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
