"""Noisy series over days, one sample per day: the mean of an hour, at the same hour.

A trace that reaches its limit has the day at which its true value, without noise, does so.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import pairwise
from random import Random

import msgspec

DAYS = 75
# Days without samples (the node was down), as a share, and what such a gap takes.
GAP_SHARE, GAP_DAYS = 0.01, 2
ROWS, RECEIVE_LOW_WATTS = 10, 1e-4
Values = list[float | None]


class Trace(msgspec.Struct):
    """Series by metric and further labels; `fails` is the day of its limit, None for never."""

    kind: str
    shape: str
    fails: float | None
    series: list[tuple[str, dict[str, str], Values]]


def traces(random: Random, count: int) -> list[Trace]:
    """Return `count` traces of each shape."""
    return [shape(random) for shape in SHAPES for _ in range(count)]


def _crossing(values: list[float], limit: float) -> float | None:
    """The day at which true values reach a limit from below, between two samples."""
    for day, (before, after) in enumerate(pairwise(values)):
        if before < limit <= after:
            return day + (limit - before) / (after - before)
    return None


def _gaps(random: Random, values: list[float]) -> Values:
    kept: Values = list(values)
    for day in range(len(kept)):
        if random.random() < GAP_SHARE:
            kept[day : day + GAP_DAYS] = [None] * len(kept[day : day + GAP_DAYS])
    return kept


def _light(
    random: Random, shape: str, margins: list[float], serials: list[str] | None = None
) -> Trace:
    """Received light by its true margin over the module's limit, in decibels. Hall and load move it
    by 0.1 dB from day to day; a module reports steps of 0.1 uW.
    """
    swing, watts = 0.0, []
    for margin in margins:
        swing = 0.7 * swing + random.gauss(0, 0.07)
        shown = RECEIVE_LOW_WATTS * 10 ** ((margin + swing + random.gauss(0, 0.03)) / 10)
        watts.append(round(max(shown, 1e-6), 7))
    serials = serials or ["A"] * DAYS
    info: list[tuple[str, dict[str, str], Values]] = [
        (
            "transceiver_info",
            {"serial": serial, "medium": "optical"},
            [1 if one == serial else None for one in serials],
        )
        for serial in dict.fromkeys(serials)
    ]
    series = [
        ("transceiver_receive_watts", {"lane": "1"}, _gaps(random, watts)),
        ("transceiver_receive_low_watts", {}, [RECEIVE_LOW_WATTS] * DAYS),
        ("transceiver_link_up", {}, [1.0] * DAYS),
        *info,
    ]
    return Trace("light", shape, _crossing([-one for one in margins], 0), series)  # type: ignore[arg-type]


def _ageing_laser(random: Random) -> Trace:
    return _laser(random, "a laser that ages over weeks", random.uniform(21, 60))


def _dying_laser(random: Random) -> Trace:
    return _laser(random, "a laser that dies within days", random.uniform(5, 14))


def _laser(random: Random, shape: str, lasts: float) -> Trace:
    """It falls in a straight line or ever faster, and reaches the limit after so many days."""
    start, power = random.uniform(1.5, 5), random.choice((1.0, 1.0, 1.5))
    onset = random.uniform(max(30 - lasts, 2), DAYS - 2 - lasts)
    margins = [start * (1 - (max(day - onset, 0) / lasts) ** power) for day in range(DAYS)]
    return _light(random, shape, margins)


def _steady_light(random: Random) -> Trace:
    return _light(random, "steady light", [random.uniform(0.5, 5)] * DAYS)


def _bent_fibre(random: Random) -> Trace:
    start, at, step = random.uniform(2, 5), random.randrange(20, 60), random.uniform(0.4, 1.6)
    return _light(random, "a fibre that was moved", [start - step * (d >= at) for d in range(DAYS)])


def _warm_summer(random: Random) -> Trace:
    start, depth = random.uniform(1, 5), random.uniform(0.2, 0.6)
    margins = [start - depth * (1 - math.cos(math.tau * d / 60)) / 2 for d in range(DAYS)]
    return _light(random, "a hall that warms up and cools", margins)


def _replaced_module(random: Random) -> Trace:
    margins, at = [random.uniform(3, 5)] * DAYS, random.randrange(20, 60)
    margins[at:] = [margins[0] - random.uniform(1, 2)] * (DAYS - at)
    serials = ["A"] * at + ["B"] * (DAYS - at)
    return _light(random, "a module that was replaced", margins, serials)


def _wear(random: Random, shape: str, start: float, daily: Callable[[int], float]) -> Trace:
    """Used endurance; disks report whole percents."""
    used, true = start, []
    for day in range(DAYS):
        true.append(used)
        used += daily(day)
    shown = _gaps(random, [math.floor(one * 100) / 100 for one in true])
    serial = {"serial": "A"}
    series = [("disk_used_ratio", {}, shown), ("disk_info", serial, [1.0] * DAYS)]
    return Trace("wear", shape, _crossing(true, 1), series)  # type: ignore[arg-type]


def _busy_disk(random: Random) -> Trace:
    rate = random.uniform(0.002, 0.012)
    start = max(1 - rate * random.uniform(25, 70), 0)
    shape = "a disk that is written to"
    return _wear(random, shape, start, lambda _: rate * random.uniform(0.3, 1.7))


def _old_disk(random: Random) -> Trace:
    rate = random.uniform(0, 0.0003)
    return _wear(random, "an old disk", random.uniform(0.7, 0.97), lambda _: rate)


def _filled_once(random: Random) -> Trace:
    at = random.randrange(20, 60)
    start = random.uniform(0.3, 0.9)
    return _wear(random, "a disk filled once", start, lambda day: 0.03 if day == at else 0.0001)


def _repairs(shape: str, counts: list[int], random: Random) -> Trace:
    labels = {"cause": "uncorrected"}
    series = [("nvidia_remapped_rows", labels, _gaps(random, [float(one) for one in counts]))]
    return Trace("memory", shape, _crossing([float(one) for one in counts], ROWS), series)


def _failing_memory(random: Random) -> Trace:
    rate, onset = random.uniform(0.12, 0.5), random.uniform(5, 20)
    counts, rows = [], 0
    for day in range(DAYS):
        rows += day > onset and _events(random, rate)
        counts.append(rows)
    return _repairs("memory that wears out", counts, random)


def _well_memory(random: Random) -> Trace:
    counts, rows = [], random.choice((0, 0, 0, 1, 3, 14))
    for _ in range(DAYS):
        rows += _events(random, 1 / 300)
        counts.append(rows)
    return Trace("memory", "memory that is well", None, _repairs("", counts, random).series)


def _burst_of_repairs(random: Random) -> Trace:
    at, rows = random.randrange(20, 60), random.randrange(2, 9)
    return _repairs("one bad reset", [rows * (day >= at) for day in range(DAYS)], random)


def _events(random: Random, rate: float) -> int:
    """How many events of a Poisson process a day has."""
    count, left = 0, random.expovariate(rate)
    while left < 1:
        count, left = count + 1, left + random.expovariate(rate)
    return count


def _space(random: Random, shape: str, used: list[float], noise: float) -> Trace:
    """A shared file system by the used share; jobs add and remove some every day."""
    shown = [max(1 - one + random.gauss(0, noise), 0.001) * 1e15 for one in used]
    labels = {"mountpoint": "/data", "fstype": "nfs4"}
    series = [
        ("mount_free_bytes", labels, _gaps(random, shown)),
        ("mount_size_bytes", labels, [1e15] * DAYS),
        ("mount_present", labels, [1.0] * DAYS),
    ]
    return Trace("space", shape, _crossing(used, 1), series)  # type: ignore[arg-type]


def _growing_space(random: Random) -> Trace:
    level, used = random.uniform(0.3, 0.75), list[float]()
    rate = (1 - level) / random.uniform(30, DAYS - 5)
    for _ in range(DAYS):
        used.append(level)
        level += rate * random.uniform(0, 2)
    return _space(random, "a file system that grows", used, 0.005)


def _stable_space(random: Random) -> Trace:
    level = random.uniform(0.6, 0.9)
    return _space(random, "one that is cleaned every week", [level] * DAYS, 0.01)


SHAPES: tuple[Callable[[Random], Trace], ...] = (
    *(_ageing_laser, _dying_laser, _steady_light, _bent_fibre, _warm_summer, _replaced_module),
    *(_busy_disk, _old_disk, _filled_once),
    *(_failing_memory, _well_memory, _burst_of_repairs),
    *(_growing_space, _stable_space),
)
