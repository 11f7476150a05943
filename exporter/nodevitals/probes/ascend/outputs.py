"""The last outputs of npu-smi and hccn_tool, kept until they are refreshed.

One `npu-smi info` takes seconds, and a call for each chip takes longer: only `npu-smi info` runs
in every cycle. Every other query has a timer; the time that is left of a cycle goes to the query
that is overdue for longest. An output is used until three of its timers have passed. A call that
failed is made again soon, after all others, and its last good output is used meanwhile.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Optional

import msgspec

from nodevitals.probes.ascend.queries import Query

STALE_TIMERS = 3


class ToolOutput(msgspec.Struct, array_like=True, frozen=True):
    """When a call was last made (monotonic, in seconds) and what it printed; where it `failed`, the
    last good output and when that was.
    """

    at: float
    text: str
    good_at: Optional[float] = None
    failed: bool = False


class CallFailedError(Exception):
    """A call that did not end, or printed something else than what was asked for."""


class OutputCache:
    """The outputs of these queries in this boot, without those that are too old."""

    def __init__(
        self,
        kept: Mapping[str, ToolOutput],
        queries: Sequence[Query],
        now: float,
        retry_seconds: float = math.inf,
    ) -> None:
        """A call that failed is made again after `retry_seconds`."""
        self._queries = queries
        self._now = now
        self._retry_seconds = retry_seconds
        self._timers = timers = {query.key: query.every_seconds for query in queries}
        self.kept = {
            key: output
            for key, output in kept.items()
            if key in timers and 0 <= now - output.at < STALE_TIMERS * timers[key]
        }

    def due(self) -> list[Query]:
        """The queries whose timer has passed, the most overdue first; those that failed last."""
        overdue = [(self._failed(query), -self._overdue(query), query) for query in self._queries]
        ready = [one for one in overdue if one[1] <= 0]
        return [query for _, _, query in sorted(ready, key=lambda one: one[:2])]

    def refresh(self, call: Callable[[Query], str | None]) -> None:
        """Run the queries that are due; `call` returns None when no time is left, and may raise
        CallFailedError.
        """
        for query in self.due():
            try:
                text = call(query)
            except CallFailedError:
                last = self.kept.get(query.key, ToolOutput(0.0, "", None, failed=True))
                good_at = last.good_at if last.failed else last.at
                self.kept[query.key] = ToolOutput(self._now, last.text, good_at, failed=True)
                continue
            if text is None:
                return
            self.kept[query.key] = ToolOutput(self._now, text)

    def text(self, key: str) -> str:
        """The last good output; '' where there is none, or where it is too old."""
        output = self.kept.get(key)
        good_at = None if output is None else output.good_at if output.failed else output.at
        if output is None or good_at is None:
            return ""
        fresh = self._now - good_at < STALE_TIMERS * self._timers[key]
        return output.text if fresh else ""

    def _failed(self, query: Query) -> bool:
        output = self.kept.get(query.key)
        return output is not None and output.failed

    def _overdue(self, query: Query) -> float:
        """The number of its timers for which a query is overdue; under 0 while it is not due."""
        output = self.kept.get(query.key)
        if output is None:
            return float(STALE_TIMERS)
        every = query.every_seconds
        every = min(every, self._retry_seconds) if output.failed else every
        return (self._now - output.at) / every - 1
