"""A fleet of hundreds of nodes as one page of samples, for rules over many nodes.

It replaces the agents where only the rules are tested: each sample has an `instance` of its own,
and Prometheus scrapes the page with `honor_labels`.
"""

from __future__ import annotations

import time

from testbed.page_server import PageServer
from testbed.site.series import Series, page_of


class Fleet(PageServer):
    """One page of samples by name and labels."""

    def __init__(self) -> None:
        super().__init__(lambda _: page_of(list(self._series.values()), time.time()))
        self._series: dict[tuple[str, tuple[tuple[str, str], ...]], Series] = {}

    def set(self, name: str, value: float | None, **labels: str) -> None:
        """Set a sample; None removes it."""
        key = (name, tuple(labels.items()))
        if value is None:
            self._series.pop(key, None)
        else:
            self._series[key] = Series(name, labels, value)
