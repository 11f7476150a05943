"""The agents of a simulated fleet, each with a page and an address of its own on loopback."""

from __future__ import annotations

import time
from collections import defaultdict

from testbed.page_server import PageServer
from testbed.site.series import Series, page_of

_OF_THE_SERVER = ("up", "scrape_")
_OF_THE_TARGET = ("job", "instance", "cluster")


class NodePages(PageServer):
    """The pages of nodes, without what Prometheus adds; a node that is down has none."""

    def __init__(self, series: list[Series], nodes: list[str]) -> None:
        super().__init__(self._exposed, nodes)
        self._pages: dict[str, list[Series]] = defaultdict(list)
        self._up: dict[str, Series] = {}
        for one in series:
            node = one.labels.get("instance", "")
            if node in nodes and one.labels["job"] == "nodevitals":
                self._add(node, one)

    def _add(self, node: str, one: Series) -> None:
        if one.name == "up":
            self._up[node] = one
        if not one.name.startswith(_OF_THE_SERVER):
            own = {key: text for key, text in one.labels.items() if key not in _OF_THE_TARGET}
            self._pages[node].append(Series(one.name, own, one.value))

    def _exposed(self, node: str) -> str | None:
        now = time.time()
        return page_of(self._pages[node], now) if self._up[node].at(now) else None
