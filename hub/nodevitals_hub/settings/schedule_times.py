"""Decides when a schedule starts a check, and why it does not.

In: the settings of a schedule, the time, its earlier checks. Out: the slot to start, reasons, the
next start, problems of the settings. Pure. Slots of the length `every` are counted from the epoch,
shifted to the beginning of the window: a clock that jumps leads to another slot, never to a second
start in the same slot.
"""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple, Protocol

import msgspec
from msgspec.structs import replace

from nodevitals.checks import CheckError
from nodevitals.checks.model import Check, CheckRequest, Kind, Outcome, Phase, Reason
from nodevitals.checks.requests.parameters import PresetLike, resolve
from nodevitals.checks.requests.presets import PRESETS
from nodevitals.checks.requests.problems import problems as problems_of_request
from nodevitals.document import Problem
from nodevitals.quantities import shown

DAY_SECONDS = 86400.0
BUDGET_SECONDS = 7 * DAY_SECONDS
MIN_EVERY_SECONDS = 1.0
MAX_NOTE_CHARACTERS = 500
MAX_NAMED = 5
# Without an expected rate, the verdict on a node needs three partners.
NEEDED: Mapping[Kind, int] = {"pair": 2, "matrix": 4, "collective": 2, "node": 1}
_WINDOW = re.compile(r"([01][0-9]|2[0-3]):([0-5][0-9])-([01][0-9]|2[0-3]):([0-5][0-9])")
_NAME = re.compile(r"[a-z0-9][a-z0-9-]{0,62}")


class ScheduleLike(Protocol):
    """The settings of a schedule (ScheduleSettings)."""

    @property
    def check(self) -> CheckRequest:
        """As in ScheduleSettings."""

    @property
    def every(self) -> float:
        """As in ScheduleSettings."""

    @property
    def window(self) -> str:
        """As in ScheduleSettings."""

    @property
    def node_hours(self) -> float | None:
        """As in ScheduleSettings."""


class ScheduledCheck(msgspec.Struct, frozen=True, kw_only=True):
    """A check that a schedule started."""

    id: str
    phase: Phase
    created: float
    ended: float | None
    outcome: Outcome | None
    reason: Reason | None = None
    message: str
    """One line of the verdict."""
    node_seconds: float
    """What it took, or may take until it has ended."""


class Window(NamedTuple):
    """A daily time window in UTC: begin and length in seconds; by default the whole day."""

    begin: float = 0.0
    length: float = DAY_SECONDS

    def rest(self, now: float) -> float:
        """Seconds until its end; infinite without a window, 0 outside."""
        if self.length >= DAY_SECONDS:
            return math.inf
        return max(0.0, self.length - (now - self.begin) % DAY_SECONDS)

    def opening(self, now: float) -> float:
        """The next time within it."""
        if self.rest(now) > 0:
            return now
        return now + DAY_SECONDS - (now - self.begin) % DAY_SECONDS


def parse_window(text: str) -> Window:
    """`01:00-05:00`, or '' for any time. Raises ValueError with the format."""
    if not text:
        return Window()
    match = _WINDOW.fullmatch(text)
    if match is None or match[1] + match[2] == match[3] + match[4]:
        raise ValueError(f"{shown(text)} is not a time of the day: write it like 01:00-05:00 (UTC)")
    begin, end = (60.0 * (60 * int(match[n]) + int(match[n + 1])) for n in (1, 3))
    return Window(begin, (end - begin) % DAY_SECONDS)


class Timing(NamedTuple):
    """When a schedule may start a check."""

    every: float
    window: Window

    @property
    def longest(self) -> float:
        """The longest time between two starts, if no start is refused."""
        if self.window.length >= DAY_SECONDS:
            return self.every
        return math.ceil(self.every / DAY_SECONDS) * DAY_SECONDS

    def slot(self, now: float) -> int:
        """The number of the slot at a time."""
        return math.floor((now - self.window.begin) / self.every)

    def due(self, now: float, done: Collection[int]) -> int | None:
        """The slot in which a check should start now; None outside the window, or if it is done."""
        slot = self.slot(now)
        return slot if slot not in done and self.window.rest(now) > 0 else None

    def next_start(self, now: float, done: Collection[int]) -> float:
        """The next time at which a check is due."""
        moment = self.window.opening(now)
        for _ in range(len(done)):
            slot = self.slot(moment)
            if slot not in done:
                break
            moment = self.window.opening((slot + 1) * self.every + self.window.begin)
        return moment


def timing_of(schedule: ScheduleLike) -> Timing:
    """The timing of a schedule whose settings have no problems."""
    return Timing(schedule.every, parse_window(schedule.window))


def scheduled(check: Check) -> ScheduledCheck:
    """The stored form of a schedule's check."""
    taken = check.cost.node_seconds
    if check.ended is not None:
        # The cost is an upper bound.
        spent = check.ended - check.started if check.started is not None else 0.0
        taken = min(taken, check.cost.nodes * max(0.0, spent))
    verdict = check.verdict
    return ScheduledCheck(
        id=check.id,
        phase=check.phase,
        created=check.created,
        ended=check.ended,
        outcome=verdict.outcome if verdict else None,
        reason=verdict.reason if verdict else None,
        message=verdict.message if verdict else "",
        node_seconds=taken,
    )


def spent(checks: Iterable[ScheduledCheck], now: float) -> float:
    """Node hours within 7 days. A check from the future also counts: the clock was set back."""
    within = (check.node_seconds for check in checks if abs(now - check.created) < BUDGET_SECONDS)
    return sum(within) / 3600


def noted(request: CheckRequest, in_use: Sequence[str]) -> CheckRequest:
    """The request, with a note that names the nodes that are left out."""
    if not in_use:
        return request
    note = f"{request.note}; " if request.note else ""
    note += f"left out, in use: {', '.join(sorted(in_use))}"
    if len(note) > MAX_NOTE_CHARACTERS:
        note = f"{note[: MAX_NOTE_CHARACTERS - 1]}…"
    return replace(request, note=note)


def too_few(resolved: CheckRequest, in_use: Sequence[str]) -> str:
    """Why the idle nodes are not enough; '' where they are."""
    every, needed = len(resolved.nodes), NEEDED[resolved.kind]
    if resolved.kind == "matrix" and resolved.expected_bytes_per_second is not None:
        needed = 2
    needed = min(needed, every)
    idle = every - len(in_use)
    if not in_use or idle >= needed:
        return ""
    more = f" and {len(in_use) - MAX_NAMED} more" if len(in_use) > MAX_NAMED else ""
    names = ", ".join(in_use[:MAX_NAMED]) + more
    return f"{idle} of {every} nodes are idle, a {resolved.kind} needs {needed}; in use: {names}"


def over_limits(
    schedule: ScheduleLike, check: Check, before: Iterable[ScheduledCheck], now: float
) -> str:
    """Why a check would exceed the window or the budget; '' where it would not."""
    if check.cost.seconds > timing_of(schedule).window.rest(now):
        seconds = f"takes up to {check.cost.seconds:.0f} s"
        return f"{seconds}, more than is left of the window {schedule.window} UTC"
    if schedule.node_hours is None:
        return ""
    already, more = spent(before, now), check.cost.node_seconds / 3600
    if already + more <= schedule.node_hours:
        return ""
    budget = f"{already:.2g} of {schedule.node_hours:g} node hours are spent within 7 days"
    return f"{budget}, and it takes up to {more:.2g} (node_hours)"


def problems(
    name: str, schedule: ScheduleLike, presets: Mapping[str, PresetLike], keep: float
) -> Iterator[Problem]:
    """The problems in the settings of a schedule."""
    path = f"schedules.{name}"
    if not _NAME.fullmatch(name):
        yield Problem(path, "choose a name of a to z, 0 to 9 and -, of at most 63 characters")
    if schedule.every < MIN_EVERY_SECONDS:
        yield Problem(f"{path}.every", "below 1s: choose a longer time")
    try:
        parse_window(schedule.window)
    except ValueError as error:
        yield Problem(f"{path}.window", str(error))
    if schedule.node_hours is not None and keep < BUDGET_SECONDS:
        text = f"below 7d, within which {path}.node_hours counts: raise one or remove the other"
        yield Problem("limits.keep", text)
    request = schedule.check
    if request.force:
        yield Problem(f"{path}.check.force", "schedules test idle nodes only: remove it")
    if not request.nodes and not request.where:
        yield Problem(f"{path}.check", "no nodes: name some, or choose them by `where`")
    try:
        # The nodes of `where` are only known from the lists.
        resolved = resolve(replace(request, where={}), {**PRESETS, **presets})
    except CheckError as error:
        yield Problem(f"{path}.check", str(error))
        return
    for problem in problems_of_request(resolved):
        if problem.path != "nodes":
            yield Problem(f"{path}.check.{problem.path}", problem.message)
