"""The shipped routes and inhibitions in a real Alertmanager: which receiver is notified of what."""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest
import requests
import yaml

from testbed.node import wait_until
from testbed.servers import ALWAYS, NEVER, Alertmanager
from testbed.webhook import Receiver

# 30 minutes are 30 s: the later tiers of an escalation do not fall into a test.
SPEED = 60.0
# The longest wait, 2 h, is 2 s.
ESCALATION_SPEED = 3600.0
TEXTS = dict.fromkeys(("summary", "description", "action"), "text") | {"runbook_url": "https://x"}


class Notifications:
    """An Alertmanager, and what its receivers were notified of."""

    def __init__(self, alertmanager: Alertmanager, receiver: Receiver) -> None:
        self.alertmanager = alertmanager
        self.receiver = receiver

    def post(self, *alerts: dict[str, str]) -> None:
        """Post firing alerts, as Prometheus does."""
        until = (datetime.now(timezone.utc) + timedelta(minutes=10)).isoformat()
        body = [
            {"labels": {"cluster": "c", **labels}, "annotations": TEXTS, "endsAt": until}
            for labels in alerts
        ]
        answer = requests.post(f"{self.alertmanager.url}/api/v2/alerts", json=body, timeout=60)
        assert answer.ok, answer.text

    def names(self, receiver: str) -> list[str]:
        """Return the names of the alerts that a receiver was notified of."""
        return sorted({labels["alertname"] for labels in self.receiver.labels(receiver)})


def alert(name: str, severity: str = "critical", **labels: str) -> dict[str, str]:
    base = {"alertname": name, "severity": severity, "component": "c", "scope": "device"}
    return {**base, "fault": name.lower(), **labels}


def notifications(
    folder: Path, speed: float, hours: dict[str, list[Any]] | None = None
) -> Iterator[Notifications]:
    """Run an Alertmanager with its webhook."""
    with Receiver() as receiver, Alertmanager(folder, receiver.url, speed, hours) as alertmanager:
        yield Notifications(alertmanager, receiver)


@pytest.fixture
def by_day(tmp_path: Path) -> Iterator[Notifications]:
    yield from notifications(tmp_path, SPEED)


@pytest.fixture
def by_night(tmp_path: Path) -> Iterator[Notifications]:
    yield from notifications(tmp_path, SPEED, {"office-hours": NEVER})


@pytest.fixture
def in_maintenance(tmp_path: Path) -> Iterator[Notifications]:
    yield from notifications(tmp_path, SPEED, {"maintenance": ALWAYS})


@pytest.fixture
def escalating(tmp_path: Path) -> Iterator[Notifications]:
    yield from notifications(tmp_path, ESCALATION_SPEED)


def test_inhibitions_mute_alerts_with_the_same_cause_on_the_same_node(
    by_day: Notifications,
) -> None:
    lost = {"vendor": "nvidia", "uuid": "GPU-1", "component": "accelerator"}
    by_day.post(
        alert("NodeDown", instance="n1"),
        alert("MountHung", instance="n1"),
        alert("MountHung", instance="n2"),
        # Without its agent, tickets of a node wait; pages do not.
        alert("ExporterDown", "warning", instance="n2"),
        alert("MountSlow", "warning", instance="n2"),
        alert("NodeMaintenance", "none", instance="n10"),
        alert("MountHung", instance="n10"),
        alert("AcceleratorLost", instance="n3", **lost),
        # The Xid of the loss stands in the title.
        alert("NvidiaXid", instance="n3", xid="79", **lost),
        alert("EccUncorrectable", instance="n3", **lost),
        alert("EccUncorrectable", instance="n4", **lost),
        alert("AcceleratorsUnseen", instance="n5", target="nvidia"),
        alert("ProbeStuck", "warning", instance="n5", target="nvidia"),
        alert("ProbeFailing", "warning", instance="n6", target="nvidia"),
        alert("RdmaPortDown", instance="n7", device="mlx5_0", port="1"),
        alert("RdmaPortFlapping", "warning", instance="n7", device="mlx5_0", port="1"),
        alert("RdmaPortErrorRate", "warning", instance="n8", device="mlx5_1", port="1"),
        alert("InsideFleetIncident", "none", instance="n9", fault="mounthung", mutes="all"),
        alert("MountSlow", "warning", instance="n9", fault="mounthung"),
        alert("MountReadOnly", instance="n9"),
        alert("InsideFleetIncident", "none", instance="n11", fault="rdma", mutes="warnings"),
        alert("RdmaPortErrorRate", "warning", instance="n11", fault="rdma"),
        alert("RdmaPortDown", instance="n11", fault="rdma", device="mlx5_0", port="1"),
        # Labels that are missing on both sides count as equal: these two must not mute anything.
        alert("RdmaPortDown"),
        alert("PeerUnreachable", "warning", scope="fleet"),
    )
    muted = {
        ("MountHung", "n1"),
        ("MountSlow", "n2"),
        ("MountHung", "n10"),
        ("EccUncorrectable", "n3"),
        ("ProbeStuck", "n5"),
        ("RdmaPortFlapping", "n7"),
        ("MountSlow", "n9"),
        ("RdmaPortErrorRate", "n11"),
    }
    wait_until(lambda: len(by_day.alertmanager.inhibited()) == 25)
    wait_until(lambda: sum(by_day.alertmanager.inhibited().values()) == len(muted))
    assert {key for key, value in by_day.alertmanager.inhibited().items() if value} == muted


def test_what_is_seen_of_a_stopped_service_elsewhere_is_muted(by_day: Notifications) -> None:
    kubelet, chrony = "kubelet.service", "chronyd.service"
    by_day.post(
        alert("ServiceDown", "warning", instance="n1", unit=kubelet),
        alert("ProbeFailing", "warning", instance="n1", probe="kubernetes"),
        alert("ProbeFailing", "warning", instance="n1", probe="nvidia"),
        alert("ServiceDown", "warning", instance="n2", unit=chrony),
        alert("ClockUnsynchronized", "warning", instance="n2"),
        alert("ClockUnsynchronized", "warning", instance="n1"),
        alert("ServiceFlapping", "warning", instance="n3", unit="nvidia-fabricmanager.service"),
        alert("NvlinkFabricNotReady", "warning", instance="n3", uuid="GPU-1"),
        alert("FilesystemReadOnly", instance="n4", mountpoint="/"),
        alert("KernelErrors", "warning", instance="n4", event="filesystem_error"),
        alert("KernelErrors", "warning", instance="n5", event="hung_task"),
        alert("AcceleratorsUnseen", instance="n6", target="nvidia"),
        alert("ProcessesBlocked", "warning", instance="n6", wait="nvidia"),
        alert("ProcessesBlocked", "warning", instance="n7", wait="nfs"),
        alert("NodeMaintenance", "none", instance="n8"),
        alert("ServiceDown", "warning", instance="n8", unit=kubelet),
    )
    muted = {
        ("ProbeFailing", "n1"),
        ("ClockUnsynchronized", "n2"),
        ("NvlinkFabricNotReady", "n3"),
        ("KernelErrors", "n4"),
        ("ProcessesBlocked", "n6"),
        ("ServiceDown", "n8"),
    }

    def found() -> set[tuple[str, str]]:
        return {key for key, value in by_day.alertmanager.inhibited().items() if value}

    wait_until(lambda: found() == muted)


def test_alerts_are_routed_by_severity_component_and_owner(by_day: Notifications) -> None:
    by_day.post(
        alert("A", "critical", instance="n1", component="accelerator"),
        alert("B", "warning", instance="n1", component="rdma"),
        alert("C", "warning", instance="n1", component="accelerator"),
        alert("D", "info", instance="n1"),
        alert("E", "info", instance="n1", owner="alice"),
        alert("Watchdog", "none"),
        alert("InsideFleetIncident", "none", instance="n2", scope="fleet"),
    )
    expected = {
        "on-call": ["A"],
        "chat": ["A"],
        "storage-and-network": ["B"],
        "hardware": ["C"],
        "job-owner": ["E"],
        "dead-mans-switch": ["Watchdog"],
        "null": ["D", "InsideFleetIncident"],
    }
    wait_until(lambda: {name: by_day.names(name) for name in expected} == expected)
    assert by_day.names("second-tier") == by_day.names("third-tier") == []


def test_unresolved_alert_escalates_through_three_tiers(escalating: Notifications) -> None:
    escalating.post(alert("A", instance="n1"))
    wait_until(lambda: escalating.names("third-tier"))
    order = [one["receiver"] for _, one in escalating.receiver.alerts]
    tiers = [name for name in dict.fromkeys(order) if name != "chat"]
    assert tiers == ["on-call", "second-tier", "third-tier"]


def test_as_shipped_no_hour_mutes(by_day: Notifications) -> None:
    """Alertmanager has read intervals without any times: what it sends now, it sends always."""
    status = requests.get(f"{by_day.alertmanager.url}/api/v2/status", timeout=60).json()
    running = yaml.safe_load(status["config"]["original"])
    intervals = {one["name"]: one.get("time_intervals", []) for one in running["time_intervals"]}
    assert intervals == {"office-hours": [{}], "maintenance": []}
    by_day.post(
        alert("A", instance="n1"),
        alert("B", "warning", instance="n2", component="rdma"),
        alert("C", "warning", instance="n3", component="accelerator"),
        alert("D", "info", instance="n4", owner="alice", component="job"),
    )
    expected = {"on-call": ["A"], "chat": ["A"], "storage-and-network": ["B"], "hardware": ["C"]}
    expected["job-owner"] = ["D"]
    wait_until(lambda: {name: by_day.names(name) for name in expected} == expected)


def test_at_night_pages_are_sent_and_warnings_are_not(by_night: Notifications) -> None:
    warning = alert("B", "warning", instance="n2", component="rdma")
    by_night.post(alert("A", instance="n1"), warning)
    # Both groups wait 30 s (0.5 s here) for these receivers.
    wait_until(lambda: by_night.names("chat") and by_night.names("on-call") == ["A"])
    time.sleep(0.5)
    assert by_night.names("storage-and-network") == []


def test_in_maintenance_no_pages_are_sent(in_maintenance: Notifications) -> None:
    in_maintenance.post(alert("A", instance="n1"))
    # The group for `chat` waits longer than that for `on-call`: 30 s and 10 s.
    wait_until(lambda: in_maintenance.names("chat"))
    time.sleep(0.5)
    assert in_maintenance.names("on-call") == []
