"""The last outputs of npu-smi and hccn_tool, kept until they are refreshed.

One `npu-smi info` takes seconds, and a call for each chip takes longer: only `npu-smi info` runs
in every cycle. Every other query has a timer; the time that is left of a cycle goes to the query
that is overdue for longest. An output is used until three of its timers have passed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import msgspec

from nodevitals.probes.ascend.queries import Query

STALE_TIMERS = 3


class ToolOutput(msgspec.Struct, array_like=True, frozen=True):
    """What a call printed, and when (monotonic, in seconds)."""

    at: float
    text: str


class OutputCache:
    """The outputs of these queries in this boot, without those that are too old."""

    def __init__(
        self, kept: Mapping[str, ToolOutput], queries: Sequence[Query], now: float
    ) -> None:
        self._queries = queries
        self._now = now
        timers = {query.key: query.every_seconds for query in queries}
        self.kept = {
            key: output
            for key, output in kept.items()
            if key in timers and 0 <= now - output.at < STALE_TIMERS * timers[key]
        }

    def due(self) -> list[Query]:
        """The queries whose timer has passed, the most overdue first."""
        overdue = [(self._overdue(query), query) for query in self._queries]
        ready = [(timers, query) for timers, query in overdue if timers >= 0]
        return [query for _, query in sorted(ready, key=lambda one: -one[0])]

    def refresh(self, call: Callable[[Query], str | None]) -> None:
        """Run the queries that are due; `call` returns None when no time is left."""
        for query in self.due():
            text = call(query)
            if text is None:
                return
            self.kept[query.key] = ToolOutput(self._now, text)

    def text(self, key: str) -> str:
        """The last output; '' where there is none."""
        output = self.kept.get(key)
        return output.text if output is not None else ""

    def _overdue(self, query: Query) -> float:
        """The number of its timers for which a query is overdue; under 0 while it is not due."""
        output = self.kept.get(query.key)
        if output is None:
            return float(STALE_TIMERS)
        return (self._now - output.at) / query.every_seconds - 1
