"""Queries Prometheus for the faults that decide isolations, and remembers its last clock.

In: settings. Out: the answer as Seen, or None with the reason in `problem`.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from nodevitals.linux.host import Clock
from nodevitals_hub.alerting.prometheus_queries import AskingError
from nodevitals_hub.alerting.servers import Servers
from nodevitals_hub.isolation.faults import (
    FULL_QUERY,
    MAX_GAP_SECONDS,
    QUERY,
    Clocks,
    Seen,
    StaleError,
    clocks_of,
    read,
    reported_query,
)

if TYPE_CHECKING:
    from nodevitals_hub.context import Hub

log = logging.getLogger(__name__)


class FaultQueries:
    """The answers of one Prometheus."""

    def __init__(self, hub: Hub, servers: Servers, clock: Clock) -> None:
        self._hub, self._servers, self._clock = hub, servers, clock
        self._before: Clocks | None = None
        self._usable = clock.monotonic()
        self.problem = "not asked yet"
        """Why there is no usable answer, in one line; "" where there is one."""

    @property
    def age(self) -> float:
        """Seconds since the last usable answer, or since the start."""
        return self._clock.monotonic() - self._usable

    async def read(self, full: bool) -> Seen | None:
        """The faults now; `full`: also the data that show whether a node may return."""
        try:
            seen = await self._ask(self._query(full))
        except (AskingError, StaleError) as error:
            if str(error) != self.problem:
                log.warning("isolations: nothing is decided: %s", error)
            self.problem = str(error)
            if self._before is not None:
                self._before = self._before._replace(usable=False)
            return None
        if self.problem:
            log.info("isolations: Prometheus has a usable answer")
        self.problem, self._usable = "", self._clock.monotonic()
        return seen

    def _query(self, full: bool) -> str:
        query = FULL_QUERY if full else QUERY
        return f"{query} or {reported_query(self._recoverable)}" if self._recoverable else query

    @property
    def _recoverable(self) -> tuple[str, ...]:
        settings = self._hub.settings.out_of_service
        return () if settings is None else settings.recoverable

    async def _ask(self, query: str) -> Seen:
        """Raises AskingError and StaleError."""
        prometheus = self._servers.prometheus
        if prometheus is None:
            raise AskingError("prometheus: not set")
        members = self._hub.members.by_name
        if not members:
            raise StaleError("the hub's lists have no nodes")
        samples = await prometheus.query(query)
        now = clocks_of(samples, self._clock.time(), self._clock.monotonic())
        before, self._before = self._before, now
        gap, cluster = self._longest_gap(), self._hub.settings.cluster
        seen = read(samples, members, cluster, now, before, gap, self._recoverable)
        self._before = now._replace(usable=True)
        return seen

    def _longest_gap(self) -> float:
        """Longest time between two answers that counts as observed: two answers may be missing."""
        settings = self._hub.settings.out_of_service
        return max(MAX_GAP_SECONDS, 3 * (0.0 if settings is None else settings.every))
