"""PromQL of the usage dashboard: numbers of now, and sums of hours and energy."""

from __future__ import annotations

from dashboards.queries import CLUSTER
from dashboards.states import GREEN, ORANGE, YELLOW

POOL = f'{CLUSTER}, pool=~"$pool"'
USER = f'{POOL}, namespace=~"$namespace", owner=~"$owner", queue=~"$queue"'
BOOKED = 'state=~"used|idle|unmeasured"'
MEASURED = 'state=~"used|idle"'
IDLE = 'state="idle"'
NUMBERS = "nodevitals:usage_accelerators:sum"
HOURS = "nodevitals:usage_accelerator:hours"
IDLE_SHARE = ((None, GREEN), (0.2, YELLOW), (0.4, ORANGE))


def hours_of(state: str, by: str = "", selector: str = USER) -> str:
    summed = f"sum_over_time({HOURS}{{{selector}, {state}}}[$__range])"
    return f"sum by ({by}) ({summed})" if by else f"sum({summed})"


def energy_of(by: str = "", selector: str = USER) -> str:
    summed = f"sum_over_time(nodevitals:usage_energy:joules{{{selector}}}[$__range])"
    return f"sum {f'by ({by}) ' if by else ''}({summed}) / 3.6e6"


def mean_of(selector: str, by: str = "", what: str = HOURS) -> str:
    """Return what the rules recorded each five minutes as a mean over each step of a graph.

    What was there for a part of the step counts in part: the sum is divided by the number of
    evaluations in the step, which is that of the series that was there throughout.
    """
    summed = f"sum_over_time({what}{{{selector}}}[$__interval])"
    times = f"max(count_over_time({what}{{{POOL}}}[$__interval]))"
    if by:
        return f"sum by ({by}) ({summed}) / on () group_left () {times}"
    return f"sum({summed}) / {times}"
