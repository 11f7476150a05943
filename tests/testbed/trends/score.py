"""Predictions beside what came: who was warned, who for nothing, and whether the range was true."""

from __future__ import annotations

from collections.abc import Iterator
from statistics import median

import msgspec

from testbed.trends.traces import Trace
from testbed.trends.verdicts import Prediction

# A ticket with fewer days left is too late to order anything.
NOTICE_DAYS = 3
# The rules need two weeks before they see a trend, and a trend takes two weeks.
FIRST_DAYS = 28
NONE = "-"
GROWING = (
    *("a laser that ages over weeks", "a laser that dies within days"),
    *("a disk that is written to", "memory that wears out", "a file system that grows"),
)


class Score(msgspec.Struct):
    """Of the traces of one shape."""

    kind: str
    shape: str
    traces: int = 0
    failing: int = 0
    warned: int = 0
    """Failing ones with a ticket in time."""
    in_vain: int = 0
    """Others with a ticket."""
    leads: list[float] = []
    """Days from the first ticket to the limit."""
    within: list[bool] = []
    """Of each day with a ticket and a range: whether the limit came within the range."""

    @property
    def lead(self) -> float:
        """The median."""
        return median(self.leads or [0])

    @property
    def coverage(self) -> float:
        """The share of days."""
        return sum(self.within) / len(self.within) if self.within else 0


def scores(given: list[Trace], found: list[dict[int, Prediction]]) -> dict[str, Score]:
    """Return the score of each shape. What reaches its limit in the first weeks, or after the end,
    was not to be predicted.
    """
    made: dict[str, Score] = {}
    for trace, predictions in zip(given, found, strict=True):
        score = made.setdefault(trace.shape, Score(trace.kind, trace.shape))
        fails = trace.fails
        if fails is not None and fails < FIRST_DAYS:
            continue
        score.traces += 1
        # Of space, there is no ticket for the days: a month ahead.
        asked = {
            day: one
            for day, one in sorted(predictions.items())
            if (one.ticket or (trace.kind == "space" and (one.days or 1e9) < 30))
            and (fails is None or day < fails)
        }
        if fails is None:
            # After the end, the limit may still come.
            score.in_vain += bool(asked) and trace.shape not in GROWING
            continue
        score.failing += 1
        if asked and min(asked) <= fails - NOTICE_DAYS:
            score.warned += 1
            score.leads.append(fails - min(asked))
        score.within += [
            one.early <= fails - day <= one.late
            for day, one in asked.items()
            if one.early is not None and one.late is not None
        ]
    return made


def rows(made: dict[str, Score]) -> Iterator[list[str]]:
    """Rows of a table."""
    for one in made.values():
        failing = bool(one.failing)
        yield [
            one.shape,
            str(one.traces),
            f"{one.warned} of {one.failing}" if failing else NONE,
            str(one.in_vain),
            f"{one.lead:.0f}" if failing else NONE,
            f"{100 * one.coverage:.0f} %" if failing else NONE,
        ]
