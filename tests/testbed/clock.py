"""A clock that tests set."""

from __future__ import annotations

from nodevitals.linux.host import Clock


class ManualClock(Clock):
    """Stops until `advance`; wall time and monotonic time move together."""

    def __init__(self, monotonic: float = 1000.0, time: float = 1_700_000_000.0) -> None:
        self._monotonic = monotonic
        self._time = time

    def monotonic(self) -> float:
        """Return the monotonic time."""
        return self._monotonic

    def time(self) -> float:
        """Return the wall time."""
        return self._time

    def jump(self, seconds: float) -> None:
        """Set the wall time forward, or back."""
        self._time += seconds

    def advance(self, seconds: float) -> None:
        """Move both times forward."""
        self._monotonic += seconds
        self._time += seconds
