"""Eight agents in network namespaces test each other with iperf3, over links whose rate tc limits;
a real Prometheus with the shipped rules identifies the bad nodes.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from nodevitals.probes.fabric import families
from testbed.fabric import AGENT_PORT, Fabric
from testbed.node import wait_until
from testbed.servers import Prometheus

SLOT_SECONDS = 3
SLOW, CUT = "node-3", "node-6"


class Site:
    """The nodes, and Prometheus."""

    def __init__(self, fabric: Fabric, prometheus: Prometheus) -> None:
        self.fabric = fabric
        self.prometheus = prometheus

    def values(self, expression: str) -> list[dict[str, Any]]:
        """The labels of a query's result."""
        return [found["metric"] for found in self.prometheus.query(expression)]

    def alerts(self, state: str) -> set[tuple[str, str]]:
        """Alerts by name and instance, without those that are not notified."""
        found = self.values(f'ALERTS{{alertstate="{state}", severity=~"critical|warning"}}')
        return {(one["alertname"], one.get("instance", "")) for one in found}


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    test = {"tool": "iperf3", "operation": "tcp", "device": "fab0", "iterations": 16}
    tests = [{**test, "timeout": "1s", "expected": "40Mb/s"}]
    with Fabric(tmp_path, 8, slot=f"{SLOT_SECONDS}s", tests=tests) as fabric:
        for name in fabric.names:
            fabric.throttle(name, "16mbit" if name == SLOW else "40mbit")
        fabric.cut(CUT)
        fabric.start()
        targets = {name: f"{space.address}:{AGENT_PORT}" for name, space in fabric.spaces.items()}
        with Prometheus(tmp_path, targets, None, 15, waits_speed=60) as prometheus:
            yield Site(fabric, prometheus)


def test_only_the_bad_nodes_are_reported(site: Site) -> None:
    expected = {("NodeFabricSlow", SLOW), ("NodeFabricUnreachable", CUT)}
    # A tournament of eight takes seven slots; the first one began in the middle of it.
    wait_until(lambda: site.alerts("firing") >= expected, 32 * SLOT_SECONDS, f"{expected}")
    tested = "nodevitals:fabric_pair:tested"
    wait_until(lambda: len(pairs(site.values(tested))) == 28, 18 * SLOT_SECONDS, "all pairs")
    # What the last results and a busy machine have raised fires or disappears.
    wait_until(
        lambda: site.alerts("firing") == expected and not site.alerts("pending"),
        what=f"{expected} and no others",
    )
    ok = site.values("nodevitals_fabric_bandwidth_bytes_per_second")
    assert site.fabric.addresses[CUT] not in {name for pair in pairs(ok) for name in pair}
    failed = site.values("nodevitals_fabric_failure")
    assert {one["reason"] for one in failed} <= {"unreachable", "timeout"}
    assert all(site.fabric.addresses[CUT] in pair for pair in pairs(failed)), str(
        [(one["source"], one["peer"], one["reason"]) for one in failed]
    )
    exposed = {one["__name__"] for one in site.values('{__name__=~"nodevitals_fabric_.+"}')}
    declared = {family.name for family in families.ALL}
    # Only perftest measures latencies, and no hub orders tests.
    assert declared - {families.LATENCY.name, families.ORDERS.name} <= exposed


def pairs(series: list[dict[str, Any]]) -> set[frozenset[str]]:
    """Pairs, in either direction."""
    return {frozenset((one["source"], one["peer"])) for one in series}
