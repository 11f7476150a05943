"""The hub's /metrics: the newest checks, schedules, leases, and the hub itself.

In: checks as they end, and the samples of other modules. Out: text for Prometheus. The families are
those of the catalogue (families.py).
"""

from __future__ import annotations

import asyncio
import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from litestar import Response, get
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from nodevitals import __version__
from nodevitals.checks.model import Check
from nodevitals_hub import families
from nodevitals_hub.checks.newest import NewestChecks, Sample
from nodevitals_hub.store import aside_tables, check_tables

if TYPE_CHECKING:
    from nodevitals_hub.context import Hub

# The checks among these that ended in an earlier process make the first baselines.
REMEMBERED_CHECKS = 300
REFRESH_SECONDS = 15.0
CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
Exposed = Callable[[], Iterable[Sample]]


class HubMetrics(Collector):
    """Collects samples at each scrape from memory: it reads neither a disk nor a network."""

    def __init__(self, hub: Hub, exposed: Sequence[Exposed] = ()) -> None:
        """`exposed`: the samples of other parts."""
        self._hub, self._exposed = hub, exposed
        self._newest = NewestChecks()
        self._open: dict[str, str] = {}
        self._store_bytes: int | None = None
        self._registry = CollectorRegistry()
        self._registry.register(self)

    def text(self) -> bytes:
        """The body of a scrape."""
        return generate_latest(self._registry)

    def describe(self) -> Iterable[Metric]:
        """Nothing: the families are declared once, in the catalogue."""
        return ()

    def collect(self) -> Iterator[Metric]:
        """Every family that has a sample."""
        metrics: dict[str, CounterMetricFamily | GaugeMetricFamily] = {}
        for family, labels, value in self._samples():
            metric = metrics.get(family.name)
            if metric is None:
                made = CounterMetricFamily if family.kind == "counter" else GaugeMetricFamily
                metric = made(family.name, family.help, labels=family.labels)
                metrics[family.name] = metric
            metric.add_metric(labels, value)
        yield from metrics.values()

    async def run(self) -> None:
        """Follow the checks until cancelled."""
        changes = self._hub.checks.changes()
        for unfinished in await self._hub.store.unfinished():
            self._open[unfinished.check.id] = unfinished.check.phase
        await self._remember()
        measuring = asyncio.ensure_future(self._measure())
        try:
            async for check in changes:
                await self._changed(check)
        finally:
            measuring.cancel()

    async def _changed(self, check: Check) -> None:
        if check.phase in ("queued", "running"):
            self._open[check.id] = check.phase
            return
        if self._open.pop(check.id, None) is not None:
            self._newest.take(await self._hub.checks.get(check.id))

    async def _remember(self) -> None:
        """Add the newest checks that ended in an earlier process, without counting them."""
        newest = await self._hub.checks.list(limit=REMEMBERED_CHECKS)
        for check in reversed(newest):
            if check.id not in self._open and check.phase == "done":
                self._newest.take(await self._hub.checks.get(check.id), count=False)

    async def _measure(self) -> None:
        path = Path(self._hub.settings.state_directory, check_tables.FILE_NAME)
        while True:
            self._store_bytes = await asyncio.to_thread(_size, path)
            await asyncio.sleep(REFRESH_SECONDS)

    def _samples(self) -> Iterator[Sample]:
        yield from self._newest.samples(self._hub.settings.external_url)
        yield families.BUILD, (__version__,), 1.0
        if url := self._hub.settings.external_url.rstrip("/"):
            yield families.ADDRESS, (url,), 1.0
        phases = Counter(self._open.values())
        for phase in ("queued", "running"):
            yield families.CHECKS, (phase,), phases[phase]
        yield families.NODES, (), len(self._hub.checks.members())
        if self._store_bytes is not None:
            yield families.STORE_BYTES, (), self._store_bytes
        yield from self._set_aside()
        for samples in self._exposed:
            yield from samples()

    def _set_aside(self) -> Iterator[Sample]:
        """The files and records that could not be read."""
        database = self._hub.database
        counts = {aside.kind: (aside.number, aside.newest) for aside in database.aside}
        times = [*self._hub.store.set_aside, *database.set_aside]
        if times:
            number, newest = counts.get("file", (0, 0.0))
            counts["file"] = number + len(times), max(newest, *times)
        for kind in aside_tables.KINDS:
            number, newest = counts.get(kind, (0, 0.0))
            yield families.SET_ASIDE, (kind,), number
            if number:
                yield families.SET_ASIDE_NEWEST, (kind,), newest


def _size(path: Path) -> int | None:
    """The size of the store with its log; None where it cannot be read."""
    try:
        files = [path, *path.parent.glob(f"{path.name}-wal")]
        return sum(os.stat(file).st_size for file in files)
    except OSError:
        return None


def handlers(metrics: HubMetrics) -> list[Any]:
    """GET /metrics."""

    @get("/metrics", sync_to_thread=False, include_in_schema=False)
    def scrape() -> Response[bytes]:
        """All families of the hub."""
        return Response(metrics.text(), media_type=CONTENT_TYPE)

    return [scrape]
