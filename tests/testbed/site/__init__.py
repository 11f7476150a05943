"""A simulated fleet, and a real Prometheus that has scraped it for an hour.

`fleet` makes nodes of what real agents exposed, `faults` breaks some, `others` adds what other
exporters say; `server` serves all of it, and `prometheus` reads it.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from testbed.site import faults as _faults
from testbed.site import fleet, hardware_faults, hub, others
from testbed.site.prometheus import PAST_SECONDS, SitePrometheus
from testbed.site.series import Series
from testbed.site.server import SitePages


class Site:
    """The fleet and its Prometheus, inside the with block."""

    def __init__(
        self,
        folder: Path,
        rules: Path | None,
        *,
        port: int | None = None,
        step: int = 15,
        faults: bool = True,
        pods: bool = True,
        cluster: bool = True,
        past_seconds: int = PAST_SECONDS,
        only: Collection[str] = (),
        also: Mapping[str, Any] | None = None,
        now: float | None = None,
        series: list[Series] | None = None,
        leased: str = "",
    ) -> None:
        """Make it: all nodes or `only` some; `also` is what Prometheus' configuration has besides.
        Sites with the same `now` have samples at the same times. `series` go before the fleet's.
        With a `leased` node there is a hub, and that node has data of every second.
        """
        now = now or time.time()
        if series is None:
            series = series_of_fleet(now, faults, pods, only)
        fast: list[Series] = []
        if leased:
            nodes = fleet.nodes(now)
            series += hub.monitoring(nodes, now, faults)
            fast = [one for node in nodes if node.name == leased for one in hub.leased(node)]
        if not cluster:
            for one in [*series, *fast]:
                one.labels = {name: text for name, text in one.labels.items() if name != "cluster"}
        self._pages = SitePages(series)
        self.prometheus = SitePrometheus(
            folder,
            self._pages,
            rules,
            step,
            port,
            fleet.CLUSTER if cluster else "",
            past_seconds,
            also,
            now,
            fast,
        )
        self.url = self.prometheus.url

    def __enter__(self) -> Site:
        with ExitStack() as stack:
            stack.enter_context(self._pages)
            stack.enter_context(self.prometheus)
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()


def series_of_fleet(
    now: float, faults: bool = True, pods: bool = True, only: Collection[str] = ()
) -> list[Series]:
    """Return the series of all nodes, or of some, and of what monitors them."""
    nodes = fleet.nodes(now)
    if faults:
        _faults.break_some(nodes, now)
        hardware_faults.break_some(nodes, now)
    series = [one for node in nodes for one in node.series]
    series += others.monitoring(nodes, now)
    if pods:
        series += others.cluster(nodes, now)
    left_out = {node.name for node in nodes} - set(only) if only else set()
    return [one for one in series if _node(one) not in left_out]


def _node(one: Series) -> str:
    """Return the node that a series is about, if its labels name one."""
    return one.labels.get("node") or one.labels.get("instance", "").partition(":")[0]
