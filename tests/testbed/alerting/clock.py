"""The clock of a scenario, which is compressed, and stops while the machine is too busy."""

from __future__ import annotations

import time
from datetime import datetime, timedelta, timezone


class ScenarioClock:
    """Seconds of a scenario in seconds of real time, which are `speed` times fewer.

    It begins at `since`. What is late delays all that follows: an alert that is sent too late would
    have ended before it arrives.
    """

    def __init__(self, speed: float, since: float = 0.0) -> None:
        self._speed = speed
        now = time.monotonic()
        self._origins = [(now, now - since / speed)]

    def wait(self, at: float) -> None:
        """Sleep until a time of the scenario; if it is over, it is that time now."""
        now = time.monotonic()
        wait = self._origins[-1][1] + at / self._speed - now
        if wait > 0:
            time.sleep(wait)
        else:
            self._origins.append((now, now - at / self._speed))

    def wall(self, at: float) -> str:
        """Return when a time of the scenario is, or was, as Alertmanager reads it."""
        distance = self._origins[-1][1] + at / self._speed - time.monotonic()
        return (datetime.now(timezone.utc) + timedelta(seconds=distance)).isoformat()

    def at(self, moment: float) -> float:
        """Return the time of the scenario at a moment of the monotonic clock."""
        origins = [origin for since, origin in self._origins if since <= moment]
        return (moment - origins[-1]) * self._speed
