"""Faults of many nodes with a common cause: the shipped rules in a real Prometheus, the shipped
routes and inhibitions in a real Alertmanager, 200 nodes.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from testbed.fleet import Fleet
from testbed.node import wait_until
from testbed.servers import Alertmanager, Prometheus
from testbed.waits import seconds
from testbed.webhook import Receiver

NODES = 200
# Evaluations are 15 times as frequent, the waits that depend on them only 5 times shorter: posting
# hundreds of alerts takes its time on a busy machine, at any speed.
SPEED = 15.0
WAITS_SPEED = 5.0
GROUP_WAIT_SECONDS = seconds("10s") / WAITS_SPEED
PORT = {"device": "mlx5_0", "port": "1", "link_layer": "InfiniBand"}
UP, RATE = "nodevitals_rdma_port_up", "nodevitals_rdma_port_expected_rate_bytes_per_second"


class Site:
    """A fleet of 20 leaves, 40 racks and two pools under the shipped rules and routes."""

    def __init__(self, fleet: Fleet, receiver: Receiver, alertmanager: Alertmanager) -> None:
        self.fleet = fleet
        self.receiver = receiver
        self.alertmanager = alertmanager
        self.names = [f"node-{number:03}" for number in range(NODES)]
        for number, name in enumerate(self.names):
            self.fleet.set(
                "nodevitals_node_info",
                1,
                instance=name,
                leaf=f"leaf-{number * 20 // NODES}",
                rack=f"rack-{number * 40 // NODES}",
                pool=f"pool-{number * 2 // NODES}",
            )
            self.fleet.set("up", 1, instance=name)
            self.set_port(name, 1)
            self.fleet.set(RATE, 50e9, instance=name, **PORT)
            self.set_mount(name, 0)
            self.set_driver(name, "550.1", 1)

    def set_port(self, name: str, up: float) -> None:
        """Set whether a node's RDMA port is up."""
        self.fleet.set(UP, up, instance=name, **PORT)

    def set_mount(self, name: str, hung: float) -> None:
        """Set for how many seconds a node's mount has hung: every third node in a call that no
        signal ends, the others in one after the other.
        """
        mount = {"mountpoint": "/data", "fstype": "nfs4", "source": "filer-1:/data"}
        self.fleet.set("nodevitals_mount_present", None if hung else 1, instance=name, **mount)
        target = {"probe": "mounts", "target": "/data"}
        stuck = 0 if self.names.index(name) % 3 else hung
        self.fleet.set("nodevitals_probe_stuck_seconds", stuck, instance=name, **target)
        self.fleet.set("nodevitals_probe_unanswered_seconds", hung, instance=name, **target)
        self.fleet.set("nodevitals_probe_success", float(not hung), instance=name, **target)

    def set_driver(self, name: str, version: str, works: float) -> None:
        """Set a node's driver version, and whether the driver answers."""
        for known in ("550.1", "560.2"):
            self.fleet.set(
                "nodevitals_nvidia_driver_info",
                1 if known == version else None,
                instance=name,
                driver_version=known,
                library_version=known,
                cuda_version="12.4",
            )
        target = {"probe": "nvidia", "target": "nvidia"}
        self.fleet.set("nodevitals_probe_success", works, instance=name, **target)
        present = 8 if works else None
        self.fleet.set("nodevitals_accelerators_present", present, instance=name, vendor="nvidia")

    def pages(self) -> Counter[tuple[str, str]]:
        """Return how often `on-call` was notified of each alert, by name and domain or node."""
        return Counter(
            (
                alert["labels"]["alertname"],
                alert["labels"].get("domain_name", alert["labels"].get("instance", "")),
            )
            for _, alert in self.receiver.alerts
            if alert["receiver"] == "on-call" and alert["status"] == "firing"
        )

    def node_alerts(self) -> dict[tuple[str, str], bool]:
        """Return whether each alert of a node's own is inhibited."""
        found = self.alertmanager.inhibited()
        fleet = ("FleetIncident", "InsideFleetIncident", "Watchdog")
        return {key: value for key, value in found.items() if key[0] not in fleet}


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    """Return a site that has been healthy for some scrapes."""
    with (
        Fleet() as fleet,
        Receiver() as receiver,
        Alertmanager(tmp_path, receiver.url, WAITS_SPEED) as alertmanager,
    ):
        made = Site(fleet, receiver, alertmanager)
        with Prometheus(
            tmp_path, {}, alertmanager, SPEED, fleet.address, WAITS_SPEED
        ) as prometheus:
            # Long enough for the rules to know that the nodes were well before their faults.
            known = "nodevitals:node_seen offset 8s"
            wait_until(lambda: len(prometheus.query(known)) == NODES, 60)
            assert made.pages() == {}
            yield made


def test_four_faults_of_200_nodes_are_four_pages(site: Site) -> None:
    """A filer that all nodes mount hangs; a leaf switch is down; a bad driver is on every third
    node, so that no leaf, rack or pool has it alone; and one more node has a port down.
    """
    leaf, bad_driver = site.names[40:50], site.names[::3]
    for name in site.names:
        site.set_mount(name, 90)
    for name in leaf:
        site.set_port(name, 0)
    for name in bad_driver:
        site.set_driver(name, "560.2", 0)
    site.set_port("node-007", 0)
    expected = {
        ("FleetIncident", "filer-1:/data"): 1,
        ("FleetIncident", "leaf-4"): 1,
        ("FleetIncident", "560.2"): 1,
        ("RdmaPortDown", "node-007"): 1,
    }
    wait_until(lambda: site.pages().keys() >= expected.keys(), 60, f"four pages; {site.pages()}")
    muted = {("MountHung", name) for name in site.names}
    muted |= {("RdmaPortDown", name) for name in leaf}
    muted |= {("AcceleratorsUnseen", name) for name in bad_driver}
    wait_until(lambda: site.node_alerts().keys() >= muted, 30, "every node's own alerts")
    time.sleep(2 * GROUP_WAIT_SECONDS)
    assert {key for key, inhibited in site.node_alerts().items() if inhibited} == muted
    assert site.pages() == expected
