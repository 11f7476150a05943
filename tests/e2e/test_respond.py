"""A GPU is lost, and all that follows: people are notified, the node is taken out of service and
comes back by itself; and a rehearsal, on which nothing acts.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from testbed.node import wait_until
from testbed.respondcluster import BROKEN, NODE, OWNER, PERSON, SECONDS, RespondCluster

MARK, TAINT = "nodevitals.io/isolation", "nodevitals.io/out-of-service"
CONDITION = "NodevitalsOutOfService"


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[RespondCluster]:
    """Well, with a job on the GPU that will be lost."""
    with RespondCluster(tmp_path / "cluster") as cluster:
        yield cluster


def test_from_a_lost_gpu_to_a_node_back_in_service(cluster: RespondCluster) -> None:
    before = cluster.api.writes()
    cluster.gpus.lose(BROKEN)
    people_are_notified(cluster)
    a_dry_run_changes_nothing(cluster, before)
    identity = a_person_approves(cluster)
    cluster.gpus.recover(BROKEN)
    the_incident_ends(cluster)
    the_node_returns(cluster, identity)
    a_drill_arrives_and_nothing_acts_on_it(cluster)
    assert len(cluster.messages(OWNER)) == 1, "an owner is told of a job once per incident"
    assert cluster.api.denied == []


def people_are_notified(cluster: RespondCluster) -> None:
    title, text = cluster.message("chat", "lost")
    assert title == f"[FIRING 1] demo: GPU {BROKEN} lost on {NODE}"
    assert "Action: Drain and reboot the node" in text
    title, text = cluster.message(OWNER)
    assert title == f"[demo] Job at risk, save your work: {OWNER}/pretrain-0"
    assert f"Node: demo {NODE}" in text
    assert "GPU" not in text, "an owner need not know hardware"


def a_dry_run_changes_nothing(cluster: RespondCluster, before: int) -> None:
    rehearsed = cluster.isolation("isolated", dry_run=True)
    assert rehearsed["node"] == NODE
    page = cluster.page("/isolations")
    assert "dry run: would be out of service" in page
    assert f'<tr id="{rehearsed["id"]}">' in page
    assert cluster.api.writes() == before
    assert cluster.api.cordoned() == []


def a_person_approves(cluster: RespondCluster) -> str:
    cluster.end_dry_run()
    refused = cluster.isolation("refused", dry_run=False)
    assert refused["reason"] == "its fault is older than the end of the dry run"
    assert cluster.api.cordoned() == []
    identity = str(refused["id"])
    assert f'action="/isolations/{identity}/approve"' in cluster.page("/isolations")
    cluster.approve(identity)
    assert cluster.isolation("isolated", dry_run=False)["id"] == identity
    api = cluster.api
    assert api.cordoned() == [NODE]
    assert api.taints(NODE) == ["site/own", TAINT]
    assert api.condition(NODE, CONDITION) == "True"
    annotations = api.annotations(NODE)
    assert annotations[MARK] == identity
    assert annotations["nodevitals.io/reason"].startswith("accelerator_lost of GPU-")
    assert [event["reason"] for event in api.of_kind("events")] == ["OutOfService"]
    return identity


def the_incident_ends(cluster: RespondCluster) -> None:
    incident = cluster.incident(resolved=False)
    _, text = cluster.message("chat", "lost")
    assert PERSON in cluster.acknowledge(text)
    cluster.message("chat", f"[RESOLVED 1] demo: GPU {BROKEN} lost on {NODE}")
    ended = cluster.incident(resolved=True)
    assert ended["id"] == incident["id"]
    assert ended["acknowledged_by"] == PERSON
    assert incident["opened"] <= ended["acknowledged"] <= ended["resolved"]
    page = cluster.page("/incidents")
    assert f"/incidents/{ended['id']}" in page
    assert PERSON in page


def the_node_returns(cluster: RespondCluster, identity: str) -> None:
    returned = cluster.isolation("returned", dry_run=False)
    assert returned["id"] == identity
    assert returned["acted"] + 3 <= returned["ended"], "the clean period"
    checked = cluster.check(returned["check"])
    assert (checked["request"]["kind"], checked["verdict"]["outcome"]) == ("node", "ok")
    assert f"/checks/{returned['check']}" in cluster.page("/isolations")
    assert cluster.api.cordoned() == []
    assert cluster.api.taints(NODE) == ["site/own"]
    assert cluster.api.condition(NODE, CONDITION) == "False"
    assert cluster.api.annotations(NODE) == {"site/own": "x"}


def a_drill_arrives_and_nothing_acts_on_it(cluster: RespondCluster) -> None:
    before, isolations = cluster.api.writes(), states(cluster)
    drill = cluster.drill()
    title, _ = cluster.message("chat", "[FIRING 1]", "Drill:")
    assert title == f"[DRILL] [FIRING 1] demo: Drill: accelerator_lost on {NODE}"
    # As long as a fault takes to be confirmed, and some rounds of the hub after it.
    lasts = 'ALERTS{alertname="Drill", alertstate="firing"} offset 15s'
    wait_until(lambda: cluster.prometheus.query(lasts), SECONDS, lasts)
    asked = cluster.queries()
    wait_until(lambda: cluster.queries() > asked + 5, SECONDS, "rounds of the hub")
    assert states(cluster) == isolations
    cluster.end_drill(drill)
    cluster.message("chat", "[RESOLVED 1]", "Drill:")
    assert cluster.api.writes() == before


def states(cluster: RespondCluster) -> dict[str, str]:
    """Of all isolations."""
    found = cluster.isolations()
    return {one["id"]: one["state"] for one in (*found["open"], *found["ended"])}
