"""When a node of the quiet fleet is scraped, booted, upgraded: what its series have in common."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

from testbed.alerting.series import STEP_SECONDS

JOB = 'job="nodevitals", cluster="c"'
# The driver of ten nodes at a time is upgraded, the next ten so much later. Its steps, in seconds
# since its beginning: driver unloaded, reboot, booted, links up, end of the maintenance.
UPGRADED_TOGETHER, UPGRADE_EVERY = 10, 1800
UNLOADED, REBOOT, BOOTED, LINKS_UP, UPGRADED = 60, 240, 540, 660, 780


class NodeCalendar:
    """The series of one node: scrapes that are missed, and the upgrade of its driver."""

    def __init__(self, number: int, nodes: int, samples: int, rng: random.Random) -> None:
        self.series: list[dict[str, str]] = []
        self.number = number
        self.samples = samples
        self.rng = rng
        self.upgrade = 600 + number // UPGRADED_TOGETHER * UPGRADE_EVERY
        # Two scrapes are missed while the agent is upgraded, one node after the other.
        agents = samples // 4 + number * samples // (2 * nodes)
        self.missing = {agents, agents + 1}
        self.missing |= {rng.randrange(samples) for _ in range(samples // 200 + 1)}
        self.missing |= set(self.during(REBOOT, BOOTED))
        self.booted = (self.upgrade + BOOTED) // STEP_SECONDS

    def during(self, begin: int, end: int) -> range:
        """Return the samples between two steps of the upgrade."""
        first, last = ((self.upgrade + at) // STEP_SECONDS for at in (begin, end))
        return range(min(first, self.samples), min(last, self.samples))

    def times(self) -> list[float]:
        """Return the time of each sample."""
        return [float(index * STEP_SECONDS) for index in range(self.samples)]

    def flat(self, value: float) -> list[float]:
        """Return a value that does not change."""
        return [value] * self.samples

    def by_time(self, value: Callable[[float], float]) -> list[float]:
        """Return a value that depends on the time."""
        return [value(at) for at in self.times()]

    def changed(self, value: float, other: float, begin: int, end: int) -> list[float]:
        """Return a value that is another one between two steps of the upgrade."""
        found, changed = self.flat(value), self.during(begin, end)
        found[changed.start : changed.stop] = [other] * len(changed)
        return found

    def counter(self, per_hour: float) -> list[float]:
        """Return a counter that increases so often, at random, and restarts at 0 with the node."""
        total, found = float(self.rng.randrange(1000)), []
        for index in range(self.samples):
            if index == self.booted:
                total = 0.0
            total += self.rng.random() < per_hour * STEP_SECONDS / 3600
            found.append(total)
        return found

    def add(
        self,
        metric: str,
        values: Sequence[float],
        labels: str = "",
        only: range | None = None,
        without: range = range(0),
    ) -> None:
        """Add a series. Missed scrapes, and samples `without` or not in `only`, have no value."""
        absent = self.missing | set(without) if metric != "up" else set()
        cells = [
            None if index in absent or (only is not None and index not in only) else f"{value:.12g}"
            for index, value in enumerate(values)
        ]
        pairs = f'{JOB}, instance="node-{self.number:03}"' + (f", {labels}" if labels else "")
        self.series.append({"series": f"{metric}{{{pairs}}}", "values": packed(cells)})


def packed(cells: list[str | None]) -> str:
    """Return the cells with runs as promtool writes them: `1x9` is ten times 1. The first of
    several without a value is a stale marker, as Prometheus writes it.
    """
    found: list[str] = []
    start = 0
    for index in range(1, len(cells) + 1):
        if index == len(cells) or cells[index] != cells[start]:
            count = index - start
            if cells[start] is not None:
                found.append(f"{cells[start]}" if count == 1 else f"{cells[start]}x{count - 1}")
            else:
                stale = ["stale"] if start else []
                count -= len(stale)
                found += stale + ([f"_x{count}"] if count else [])
            start = index
    return " ".join(found)
