"""Who is told what, and once: the shipped rules in a real Prometheus, the shipped routes and
inhibitions in a real Alertmanager, hundreds of nodes.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest
import requests

from testbed.fleet import Fleet
from testbed.node import wait_until
from testbed.servers import ALWAYS, NEVER, Alertmanager, Prometheus, Receiver

SPEED = 60.0
PORT = {"device": "mlx5_0", "port": "1", "link_layer": "InfiniBand"}
UP, RATE = "nodevitals_rdma_port_up", "nodevitals_rdma_port_expected_rate_bytes_per_second"


class Told:
    """An Alertmanager and what its receivers heard."""

    def __init__(self, alertmanager: Alertmanager, receiver: Receiver) -> None:
        self.alertmanager = alertmanager
        self.receiver = receiver

    def post(self, *alerts: dict[str, str]) -> None:
        """Let alerts fire, as Prometheus does."""
        until = (datetime.now(timezone.utc) + timedelta(minutes=10)).isoformat()
        body = [
            {"labels": {"cluster": "c", **labels}, "annotations": TEXTS, "endsAt": until}
            for labels in alerts
        ]
        answer = requests.post(f"{self.alertmanager.url}/api/v2/alerts", json=body, timeout=5)
        assert answer.ok, answer.text

    def muted(self) -> dict[tuple[str, str], bool]:
        """Whether each alert, by name and instance, is inhibited."""
        found: list[dict[str, Any]] = requests.get(
            f"{self.alertmanager.url}/api/v2/alerts", timeout=5
        ).json()
        return {
            (one["labels"]["alertname"], one["labels"].get("instance", "")): bool(
                one["status"]["inhibitedBy"]
            )
            for one in found
        }

    def heard(self, name: str) -> list[dict[str, str]]:
        """The labels of the alerts that a receiver was told of."""
        return [alert["labels"] for _, alert in self.receiver.alerts if alert["receiver"] == name]


TEXTS = dict.fromkeys(("summary", "description", "action"), "text") | {"runbook_url": "https://x"}


def alert(name: str, severity: str = "critical", **labels: str) -> dict[str, str]:
    base = {"alertname": name, "severity": severity, "component": "c", "scope": "device"}
    return {**base, "fault": name.lower(), **labels}


@pytest.fixture
def told(tmp_path: Path) -> Iterator[Told]:
    with Receiver() as receiver, Alertmanager(tmp_path, receiver.url, SPEED) as alertmanager:
        yield Told(alertmanager, receiver)


def test_inhibitions_mute_what_one_alert_says_and_no_other_node(told: Told) -> None:
    lost = {"vendor": "nvidia", "uuid": "GPU-1", "component": "accelerator"}
    told.post(
        alert("ExporterDown", "warning", instance="n1"),
        alert("MountHung", instance="n1"),
        alert("MountHung", instance="n2"),
        alert("AcceleratorLost", instance="n3", **lost),
        alert("EccUncorrectable", instance="n3", **lost),
        alert("EccUncorrectable", instance="n4", **lost),
        alert("AcceleratorsUnseen", instance="n5", target="nvidia"),
        alert("ProbeStuck", "warning", instance="n5", target="nvidia"),
        alert("ProbeFailing", "warning", instance="n6", target="nvidia"),
        alert("RdmaPortDown", instance="n7", device="mlx5_0", port="1"),
        alert("RdmaPortFlapping", "warning", instance="n7", device="mlx5_0", port="1"),
        alert("RdmaPortErrorRate", "warning", instance="n8", device="mlx5_1", port="1"),
        alert("InsideFleetIncident", "none", instance="n9", fault="mounthung", scope="fleet"),
        alert("MountSlow", "warning", instance="n9", fault="mounthung"),
        alert("MountReadOnly", instance="n9"),
        # Without an instance nothing may be muted: labels missing on both sides are equal.
        alert("RdmaPortDown"),
        alert("PeerUnreachable", "warning", scope="fleet"),
    )
    expected = {
        ("MountHung", "n1"): True,
        ("EccUncorrectable", "n3"): True,
        ("ProbeStuck", "n5"): True,
        ("RdmaPortFlapping", "n7"): True,
        ("MountSlow", "n9"): True,
    }
    wait_until(lambda: len(told.muted()) == 17)
    wait_until(lambda: sum(told.muted().values()) == len(expected))
    found = told.muted()
    assert {key: value for key, value in found.items() if value} == expected


def test_each_is_told_by_severity_component_and_owner(told: Told) -> None:
    told.post(
        alert("A", "critical", instance="n1", component="accelerator"),
        alert("B", "warning", instance="n1", component="rdma"),
        alert("C", "warning", instance="n1", component="accelerator"),
        alert("D", "info", instance="n1"),
        alert("E", "info", instance="n1", owner="alice"),
        alert("Watchdog", "none"),
        alert("InsideFleetIncident", "none", instance="n2", scope="fleet"),
    )
    wanted = {
        "on-call": ["A"],
        "chat": ["A"],
        "storage-and-network": ["B"],
        "hardware": ["C"],
        "job-owner": ["E"],
        "dead-mans-switch": ["Watchdog"],
    }

    def names(receiver: str) -> list[str]:
        return sorted({labels["alertname"] for labels in told.heard(receiver)})

    wait_until(lambda: all(names(receiver) == found for receiver, found in wanted.items()))
    # Later tiers hear of what is still unresolved: 30 minutes are 30 s here.
    assert names("second-tier") == names("third-tier") == []
    time.sleep(1)
    assert names("nobody") == ["D", "InsideFleetIncident"]


def test_an_alert_that_stays_climbs_three_tiers(tmp_path: Path) -> None:
    with Receiver() as receiver, Alertmanager(tmp_path, receiver.url, 1800) as alertmanager:
        told = Told(alertmanager, receiver)
        told.post(alert("A", instance="n1"))
        wait_until(lambda: told.heard("third-tier"))
        order = [
            one["receiver"]
            for _, one in receiver.alerts
            if one["receiver"] in ("on-call", "second-tier", "third-tier")
        ]
        assert list(dict.fromkeys(order)) == ["on-call", "second-tier", "third-tier"]


def test_at_night_pages_go_out_and_warnings_wait(tmp_path: Path) -> None:
    hours = {**ALWAYS, "office-hours": NEVER}
    with Receiver() as receiver, Alertmanager(tmp_path, receiver.url, SPEED, hours) as running:
        told = Told(running, receiver)
        told.post(alert("A", instance="n1"), alert("B", "warning", instance="n2", component="rdma"))
        wait_until(lambda: told.heard("on-call"))
        time.sleep(2)
        assert told.heard("storage-and-network") == []


def test_in_maintenance_nobody_is_paged(tmp_path: Path) -> None:
    hours = {**ALWAYS, "maintenance": ALWAYS["office-hours"]}
    with Receiver() as receiver, Alertmanager(tmp_path, receiver.url, SPEED, hours) as running:
        told = Told(running, receiver)
        told.post(alert("A", instance="n1"))
        wait_until(lambda: told.heard("chat"))
        time.sleep(1)
        assert told.heard("on-call") == []


class Site:
    """A fleet under the shipped rules and routes: four leaves, eight racks, two pools."""

    def __init__(self, fleet: Fleet, receiver: Receiver, nodes: int) -> None:
        self.fleet = fleet
        self.receiver = receiver
        self.names = [f"node-{number:03}" for number in range(nodes)]
        for number, name in enumerate(self.names):
            self.fleet.set(
                "nodevitals_node_info",
                1,
                instance=name,
                leaf=f"leaf-{number * 20 // nodes}",
                rack=f"rack-{number * 40 // nodes}",
                pool=f"pool-{number * 2 // nodes}",
            )
            self.fleet.set("up", 1, instance=name)
            self.port(name, 1)
            self.fleet.set(RATE, 50e9, instance=name, **PORT)
            self.mount(name, 0)
            self.driver(name, "550.1", 1)

    def port(self, name: str, up: float) -> None:
        """Set a node's port."""
        self.fleet.set(UP, up, instance=name, **PORT)

    def mount(self, name: str, stuck: float) -> None:
        """Set for how long a node's mount hangs."""
        mount = {"mountpoint": "/data", "fstype": "nfs4", "source": "filer-1:/data"}
        self.fleet.set("nodevitals_mount_present", None if stuck else 1, instance=name, **mount)
        target = {"probe": "mounts", "target": "/data"}
        self.fleet.set("nodevitals_probe_stuck_seconds", stuck, instance=name, **target)
        self.fleet.set("nodevitals_probe_success", float(not stuck), instance=name, **target)

    def driver(self, name: str, version: str, works: float) -> None:
        """Set a node's driver, and whether it can be asked."""
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
        """How often the person on call was told of each alert, by name and domain or node."""
        return Counter(
            (
                alert["labels"]["alertname"],
                alert["labels"].get("domain_name", alert["labels"].get("instance", "")),
            )
            for receiver, body in self.receiver.messages
            for alert in body["alerts"]
            if receiver == "on-call" and alert["status"] == "firing"
        )


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    """Return a site of 500 nodes that has been well for a while.

    Evaluations come 15 times as often, what waits for them is 5 times shorter: to post 1,000 alerts
    takes its time on a busy machine, at any speed.
    """
    with Fleet() as fleet, Receiver() as receiver:
        made = Site(fleet, receiver, 500)
        with (
            Alertmanager(tmp_path, receiver.url, 5) as alertmanager,
            Prometheus(tmp_path, {}, alertmanager, 15, fleet.address, 5) as prometheus,
        ):
            wait_until(lambda: len(prometheus.query("nodevitals:domain:nodes")) > 20, 60)
            time.sleep(3)
            assert made.pages() == {}
            yield made


def test_four_troubles_of_500_nodes_are_four_pages(site: Site) -> None:
    """A filer that all mount hangs; a leaf switch is down; a bad driver was rolled out to every
    third node, so no leaf, rack or pool has it alone; and one more node has a trouble of its own.
    """
    for name in site.names:
        site.mount(name, 90)
    for name in site.names[100:125]:
        site.port(name, 0)
    for name in site.names[::3]:
        site.driver(name, "560.2", 0)
    site.port("node-007", 0)
    expected = {
        ("FleetIncident", "filer-1:/data"): 1,
        ("FleetIncident", "leaf-4"): 1,
        ("FleetIncident", "560.2"): 1,
        ("RdmaPortDown", "node-007"): 1,
    }
    wait_until(lambda: site.pages().keys() >= expected.keys(), 60, f"four pages; {site.pages()}")
    # The other nodes' own alerts wait two minutes at most, as long as that of node-007: what was
    # not muted is out soon after it.
    time.sleep(10)
    assert site.pages() == expected
