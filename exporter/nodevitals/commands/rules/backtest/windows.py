"""The parts of the span in which something happens: times of changes in, windows out.

Once every fault has stayed as it is for longer than any rule waits or remembers, every alert stays
as it is, too, until the next change: this time is left out. A window is shown to promtool as
`slots` of one evaluation each, one window after the other.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

import msgspec

from nodevitals.commands.rules.backtest.plan import LocalRule
from nodevitals.commands.rules.backtest.references import references
from nodevitals.commands.rules.backtest.routing import seconds_of
from nodevitals.commands.rules.backtest.rule_set import EVALUATION_SECONDS

LEAD_SECONDS = 120.0
"""A window begins so long before a change."""
_RANGE = re.compile(r"\[\s*([0-9a-z]+)")
_LOOKBACK_SECONDS = 300.0


class Window(msgspec.Struct, frozen=True):
    """From `start` to before `end`; multiples of the evaluation interval since the epoch."""

    start: float
    end: float

    @property
    def slots(self) -> int:
        """Number of evaluations."""
        return round((self.end - self.start) / EVALUATION_SECONDS)


def settling_seconds(rules: Sequence[LocalRule]) -> float:
    """After this time without a change of what the rules read, no alert changes any more."""
    records: dict[str, list[LocalRule]] = {}
    for rule in rules:
        records.setdefault(rule.rule.name, []).append(rule)
    known: dict[int, float] = {}

    def settle(rule: LocalRule) -> float:
        if id(rule) not in known:
            known[id(rule)] = 0.0  # what reads itself
            read = {one.name for one in references(rule.expression)[1]}
            before = max((settle(one) for name in read for one in records.get(name, ())), default=0)
            ranges = sum(seconds_of(text) for text in _RANGE.findall(rule.expression))
            known[id(rule)] = before + ranges + rule.rule.wait + rule.rule.keep_firing
        return known[id(rule)]

    return max(map(settle, rules), default=0.0) + _LOOKBACK_SECONDS


def remember(rules: Sequence[LocalRule]) -> bool:
    """Whether a rule reads what it recorded before: its state may outlast every wait."""
    return any(
        one.name == rule.rule.name for rule in rules for one in references(rule.expression)[1]
    )


def windows_around(
    changes: Iterable[float], start: float, end: float, settling: float
) -> list[Window]:
    """Windows around the start of the span and every change in it."""
    found: list[Window] = []
    for change in sorted({start, *(time for time in changes if start < time < end)}):
        first = max(start, change - LEAD_SECONDS)
        last = min(end, change + settling)
        if found and first <= found[-1].end:
            found[-1] = Window(found[-1].start, last)
        else:
            found.append(Window(first, last))
    return [Window(_aligned(one.start), _aligned(one.end)) for one in found]


def _aligned(time: float) -> float:
    return time // EVALUATION_SECONDS * EVALUATION_SECONDS
