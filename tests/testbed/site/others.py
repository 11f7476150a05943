"""What other exporters say of the fleet: pods, containers, and monitoring itself."""

from __future__ import annotations

from testbed.site.fleet import CLUSTER, SiteNode
from testbed.site.series import Series, Value, grows, waves


def series(nodes: list[SiteNode], now: float) -> list[Series]:
    """Return the series of others."""
    return []
