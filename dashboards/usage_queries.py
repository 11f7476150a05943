"""PromQL of the usage dashboard: numbers of now, and sums of hours and energy."""

from __future__ import annotations

from dashboards.queries import CLUSTER
from dashboards.states import BLUE, GREEN, GREY, ORANGE, RED, YELLOW

POOL = f'{CLUSTER}, pool=~"$pool"'
USER = f'{POOL}, namespace=~"$namespace", owner=~"$owner", queue=~"$queue"'
BOOKED = 'state=~"used|idle|unmeasured"'
MEASURED = 'state=~"used|idle"'
IDLE = 'state="idle"'
NUMBERS = "nodevitals:usage_accelerators:sum"
HOURS = "nodevitals:usage_accelerator:hours"
COLOURS = {
    "used": GREEN,
    "idle": YELLOW,
    "unmeasured": "light-blue",
    "unbooked": "purple",
    "free": BLUE,
    "unavailable": RED,
    "unknown": GREY,
}
NEUTRAL = ((None, BLUE),)
IDLE_SHARE = ((None, GREEN), (0.2, YELLOW), (0.4, ORANGE))


def hours_of(state: str, by: str = "", selector: str = USER) -> str:
    summed = f"sum_over_time({HOURS}{{{selector}, {state}}}[$__range])"
    return f"sum by ({by}) ({summed})" if by else f"sum({summed})"


def energy_of(by: str = "", selector: str = USER) -> str:
    summed = f"sum_over_time(nodevitals:usage_energy:joules{{{selector}}}[$__range])"
    return f"sum {f'by ({by}) ' if by else ''}({summed}) / 3.6e6"


def mean_of(by: str, selector: str) -> str:
    """Return mean numbers over each step of a graph: an interval of five minutes has one value."""
    return f"sum by ({by}) (avg_over_time({HOURS}{{{selector}}}[$__interval])) * 12"
