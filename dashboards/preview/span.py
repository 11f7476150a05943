"""A dashboard's time range, and the steps of its graphs as Grafana calculates them.

The rules are those of `calculateInterval` and `roundInterval` in grafana-data and of promlib's
`calculateRateInterval`. Times are seconds.
"""

from __future__ import annotations

import bisect
import math
import re
from dataclasses import dataclass

SECONDS = {"ms": 0.001, "s": 1, "m": 60, "h": 3600, "d": 86400, "w": 604800, "y": 31536000}
DURATION = re.compile(r"(\d+(?:\.\d+)?)(ms|[smhdwy])")
# Up to each limit, exclusively, a step is rounded to the value below it; both in milliseconds.
LIMITS = (
    10, 15, 35, 75, 150, 350, 750, 1500, 3500, 7500, 12500, 17500, 25000, 45000, 90000, 210000,
    450000, 750000, 1050000, 1500000, 2700000, 5400000, 9000000, 16200000, 32400000, 86400000,
    604800000, 1814400000, 3628800000,
)  # fmt: skip
ROUNDED = (
    1, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10000, 15000, 20000, 30000, 60000, 120000,
    300000, 600000, 900000, 1200000, 1800000, 3600000, 7200000, 10800000, 21600000, 43200000,
    86400000, 604800000, 2592000000, 31536000000,
)  # fmt: skip
# A graph has a point per pixel: its width on a screen of 1,920 pixels, 24 columns wide.
PIXELS_PER_COLUMN = 80
# Prometheus answers no more points.
MOST_POINTS = 11000


def seconds(text: str) -> float:
    """Return a duration such as 1h30m; a bare number is seconds."""
    if re.fullmatch(r"\d+(\.\d+)?", text):
        return float(text)
    if not text or DURATION.sub("", text):
        raise ValueError(f"{text!r} is not a duration")
    return sum(float(number) * SECONDS[unit] for number, unit in DURATION.findall(text))


def duration(value: float) -> str:
    """Return seconds as a duration in the largest unit that has no remainder."""
    for unit in ("d", "h", "m", "s"):
        if value >= SECONDS[unit] and value % SECONDS[unit] == 0:
            return f"{int(value // SECONDS[unit])}{unit}"
    return f"{round(value * 1000)}ms"


def rounded(step: float) -> float:
    """Return the step that Grafana uses instead of a calculated one."""
    return ROUNDED[bisect.bisect_right(LIMITS, step * 1000)] / 1000


@dataclass(frozen=True)
class Span:
    """A time range, and the scrape interval that is configured in the data source."""

    start: float
    end: float
    scrape: float = 15.0

    @classmethod
    def last(cls, since: str, end: float, scrape: float = 15.0) -> Span:
        """Return the range from `now-6h`, or from `6h` before its end."""
        return cls(end - seconds(since.removeprefix("now-")), end, scrape)

    @property
    def length(self) -> float:
        """Return the seconds of the range."""
        return self.end - self.start

    def interval(self, points: float, lowest: float) -> float:
        """Return the step of a graph with that many points."""
        return max(rounded(self.length / points), lowest)

    def step(self, points: float, minimum: str = "") -> float:
        """Return `$__interval`; `minimum` is the query's or the panel's own."""
        lowest = seconds(minimum) if minimum else self.scrape
        return max(self.interval(points, lowest), rounded(self.length / MOST_POINTS))

    def rate(self, points: float, minimum: str = "") -> float:
        """Return `$__rate_interval`."""
        lowest = seconds(minimum) if minimum else self.scrape
        return max(self.interval(points, lowest) + lowest, 4 * lowest)

    def aligned(self, step: float) -> tuple[float, float]:
        """Return start and end, each rounded down to a multiple of the step."""
        return math.floor(self.start / step) * step, math.floor(self.end / step) * step

    def words(self, points: float, minimum: str = "") -> dict[str, str]:
        """Return the values of Grafana's own variables for a query."""
        step, rate = self.step(points, minimum), self.rate(points, minimum)
        return {
            "__interval": duration(step),
            "__rate_interval": duration(rate),
            "__range": f"{round(self.length)}s",
            "__range_s": str(round(self.length)),
        }
