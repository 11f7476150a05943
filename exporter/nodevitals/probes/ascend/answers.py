"""What npu-smi and hccn_tool have answered, kept until it is asked anew.

One `npu-smi info` takes seconds and a call for each chip takes longer: only that one is made in
every cycle. The others have timers, and what is left of a cycle's time goes to the one that has
waited longest; their answers stand until three times their timer has passed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import msgspec

STALE_TIMERS = 3


class Query(msgspec.Struct, frozen=True):
    """One call: what it is kept under, its arguments after the program's path, and how often."""

    key: str
    program: str
    arguments: tuple[str, ...]
    every_seconds: float


class Answer(msgspec.Struct, array_like=True, frozen=True):
    """What a call printed, and when (monotonic)."""

    at: float
    text: str


class Answers:
    """The answers of one boot, and which are due."""

    def __init__(self, kept: Mapping[str, Answer], queries: list[Query], now: float) -> None:
        self._queries = queries
        self._now = now
        wanted = {query.key: query for query in queries}
        self.kept = {
            key: answer
            for key, answer in kept.items()
            if key in wanted and 0 <= now - answer.at < STALE_TIMERS * wanted[key].every_seconds
        }

    def due(self) -> list[Query]:
        """The calls to make, the longest waiting first."""
        waits = [(self._waiting(query), at) for at, query in enumerate(self._queries)]
        ready = [(wait, at) for wait, at in waits if wait >= 0]
        return [self._queries[at] for _, at in sorted(ready, key=lambda one: (-one[0], one[1]))]

    def refresh(self, call: Callable[[Query], str | None]) -> None:
        """Make the calls that are due, until `call` says with None that the time is up."""
        for query in self.due():
            text = call(query)
            if text is None:
                return
            self.kept[query.key] = Answer(self._now, text)

    def text(self, key: str) -> str:
        """The last answer; '' where there is none."""
        answer = self.kept.get(key)
        return answer.text if answer is not None else ""

    def _waiting(self, query: Query) -> float:
        """For how many of its timers a call is overdue; under 0 when it is not."""
        answer = self.kept.get(query.key)
        if answer is None:
            return float(STALE_TIMERS)
        return (self._now - answer.at) / query.every_seconds - 1
