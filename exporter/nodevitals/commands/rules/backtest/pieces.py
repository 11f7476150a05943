"""Windows grouped into runs of promtool: its memory is bounded, and no state is lost between."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec

from nodevitals.commands.rules.backtest.rule_set import EVALUATION_SECONDS
from nodevitals.commands.rules.backtest.windows import LEAD_SECONDS, Window

WANTED_SLOTS = 1_500
"""A run ends at the next quiet moment after this many evaluations."""
MAX_SAMPLES = 8_000_000
"""Series times evaluations of one run; promtool needs about 100 bytes for each."""


class Piece(msgspec.Struct, frozen=True):
    """One run: its windows, and the evaluations at its beginning that only bring back the state.

    `forced`: something was active at its beginning, and what a rule remembers about itself for
    longer than the warm-up is lost.
    """

    windows: tuple[Window, ...]
    warm_up: int
    forced: bool

    def slots(self) -> int:
        """Number of evaluations."""
        return sum(window.slots for window in self.windows)

    def time_of(self, slot: int) -> float:
        """The time of an evaluation."""
        for window in self.windows:
            if slot < window.slots:
                return window.start + slot * EVALUATION_SECONDS
            slot -= window.slots
        return self.windows[-1].end


def pieces_of(
    windows: Sequence[Window], settling: float, series: int, is_quiet: Callable[[float], bool]
) -> list[Piece]:
    """Runs for windows. `series` is their number at most; `is_quiet` whether no state that a later
    evaluation needs exists at a time.
    """
    most = max(MAX_SAMPLES // max(series, 1), 2 * round(settling / EVALUATION_SECONDS))
    found: list[Piece] = []
    held: list[Window] = []
    warm_up, forced = 0, False
    for window in _shorter(windows, settling, most):
        held.append(window)
        slots = sum(one.slots for one in held)
        quiet = is_quiet(window.end - EVALUATION_SECONDS)
        if slots >= most or (quiet and slots >= WANTED_SLOTS):
            found.append(Piece(tuple(held), warm_up, forced))
            forced = not quiet
            held = _last(held, settling if forced else LEAD_SECONDS)
            warm_up = sum(one.slots for one in held)
    if not found or sum(one.slots for one in held) > warm_up:
        found.append(Piece(tuple(held), warm_up, forced))
    return found


def _shorter(windows: Sequence[Window], settling: float, most: int) -> list[Window]:
    """The windows, cut where one alone is too long for a run."""
    longest = most * EVALUATION_SECONDS - settling
    longest = max(longest // EVALUATION_SECONDS, 1) * EVALUATION_SECONDS
    found = []
    for window in windows:
        start = window.start
        while window.end - start > longest:
            found.append(Window(start, start + longest))
            start += longest
        found.append(Window(start, window.end))
    return found


def _last(windows: Sequence[Window], seconds: float) -> list[Window]:
    """The last part of windows, so long."""
    found: list[Window] = []
    for window in reversed(windows):
        start = max(window.start, window.end - seconds)
        found.insert(0, Window(start // EVALUATION_SECONDS * EVALUATION_SECONDS, window.end))
        seconds -= window.end - start
        if seconds <= 0:
            break
    return found
