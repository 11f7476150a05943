"""Owners of the jobs on a faulty node are notified once per incident."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
import yaml

from testbed.faultprometheus import VectorPrometheus
from testbed.hub import HubProcess
from testbed.node import wait_until
from testbed.notifykills import FarSide, hub_with_channels, message, send

INBOX, DELIVERIES = "inbox", "deliveries WHERE state = 'waiting'"
JOB = {"namespace": "vision", "pod": "train-7", "job_name": "", "owner": "team-vision"}


class JobsPrometheus(VectorPrometheus):
    """Each query has the jobs."""

    def __init__(self) -> None:
        super().__init__()
        self.jobs: list[dict[str, str]] = []

    def rows(self) -> list[dict[str, str]]:
        """Return the labels of the jobs."""
        return self.jobs


@pytest.fixture
def far() -> Iterator[FarSide]:
    with FarSide() as found:
        yield found


@pytest.fixture
def prometheus() -> Iterator[JobsPrometheus]:
    with JobsPrometheus() as found:
        yield found


def to_owners(far: FarSide) -> list[str]:
    """What arrived about the job."""
    return [text for _, _, text in list(far.taken) if "train-7" in text]


def test_the_alert_of_the_job_comes_before_the_one_that_opens_the_incident(
    tmp_path: Path, far: FarSide, prometheus: JobsPrometheus
) -> None:
    prometheus.jobs = [{**JOB, "instance": "gpu-1:9855", "uuid": "GPU-1"}]
    hub = hub_with_channels(tmp_path, far, owners={"channel": "first"})
    config = yaml.safe_load(hub.config.read_text())
    hub.config.write_text(json.dumps({**config, "prometheus": {"url": prometheus.url}}))
    impact = {"severity": "info", "component": "job", "fault": "job_impact", **JOB}
    with hub:
        early = message(1, alertname="JobOwnerImpact", uuid="GPU-1", **impact)
        early["alerts"][0]["fingerprint"] = "f" * 16
        send(hub, early)
        wait_until(lambda: to_owners(far), 20, "the owner's message")
        before = prometheus.queries
        send(hub, message(1, scope="node"))
        send(hub, message(2, scope="node"))
        wait_until(lambda: prometheus.queries >= before + 2, 20, "both queries")
        wait_until(lambda: "fault 2 of" in str(far.taken), 20, "the last message")
        wait_until(lambda: not (waiting(hub, INBOX) or waiting(hub, DELIVERIES)), 20, "the end")
        assert len(to_owners(far)) == 1


def waiting(hub: HubProcess, rows: str) -> int:
    """Number of rows in the hub's file."""
    with closing(sqlite3.connect(hub.state / "respond.db")) as connection:
        return int(connection.execute(f"SELECT count(*) FROM {rows}").fetchone()[0])


def test_an_owner_is_notified_once_per_incident(
    tmp_path: Path, far: FarSide, prometheus: JobsPrometheus
) -> None:
    """Also where Prometheus was away first, the hub was killed, and a second fault comes."""
    prometheus.jobs = [{**JOB, "instance": "gpu-1:9855", "uuid": "GPU-1"}]
    prometheus.is_away = True
    hub = hub_with_channels(tmp_path, far, owners={"channel": "first"})
    config = yaml.safe_load(hub.config.read_text())
    hub.config.write_text(json.dumps({**config, "prometheus": {"url": prometheus.url}}))
    with hub:
        send(hub, message(1, scope="node"))
        wait_until(lambda: len(far.taken) == 1, 20, "the operators' message")
        wait_until(lambda: prometheus.queries > 0, 20, "a query")
        # One that was sent and is not noted as sent is sent again.
        wait_until(lambda: not waiting(hub, DELIVERIES), 20, "a note of it")
        hub.kill()
        prometheus.is_away = False
        hub.start()
        wait_until(lambda: to_owners(far), 30, "the owner's message")
        second = message(1, scope="node", alertname="MountHung")
        second["alerts"][0]["fingerprint"] = "f" * 16
        send(hub, second)
        wait_until(lambda: len(far.taken) == 3, 20, "the operators' second message")
        send(hub, message(2, scope="node"))
        wait_until(lambda: len(far.taken) == 4, 20, "the operators' third message")
        wait_until(lambda: prometheus.queries >= 4, 20, "all queries")
        [text] = to_owners(far)
        assert "gpu-1" in text
        assert "vision" in text
