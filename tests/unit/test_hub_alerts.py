"""Alerts become requests: which nodes, which partners, and the reason where there is no check."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Collection, Iterable, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodevitals.checks.model import Check, CheckRequest, Cost, Requester
from nodevitals_hub.checks.check_requests import Member, RefusedError
from nodevitals_hub.checks.coordinator import Coordinator
from nodevitals_hub.settings.hub import AlertCheckSettings, HubSettings
from nodevitals_hub.triggers.alert_plan import (
    MAX_GROUPS,
    MAX_SUSPECTS,
    Group,
    Known,
    Message,
    decode,
    grouped,
    node_of,
    request_of,
)
from nodevitals_hub.triggers.alerts import FILE_NAME, Alerts

NOW = 1_000_000.0
RULE = AlertCheckSettings(alertname="NodeFabricSlow", preset="latency", group_by="leaf")


def members(count: int = 8, leaves: int = 2) -> list[Member]:
    return [
        Member(name=f"gpu-{n}", host=f"gpu-{n}", port=9856, labels={"leaf": f"l{n % leaves}"})
        for n in range(count)
    ]


class Queue(Coordinator):
    """What is below the alerts: takes every check, once per key, or refuses it."""

    def __init__(self, nodes: Sequence[Member]) -> None:
        self.nodes = nodes
        self.taken: dict[str, CheckRequest] = {}
        self.refusal: RefusedError | None = None
        self.nodes_in_use: set[str] = set()
        self.leases: list[tuple[str, set[str]]] = []

    def members(self) -> Sequence[Member]:
        return self.nodes

    async def submit(
        self,
        request: CheckRequest,
        requester: Requester,
        key: str = "",
        without: Collection[str] = (),
    ) -> Check:
        if self.refusal is not None:
            raise self.refusal
        assert (requester.trigger, requester.role) == ("alert", "run")
        self.taken.setdefault(key, request)
        number = list(self.taken).index(key)
        cost = Cost(nodes=1, runs=1, node_seconds=1, seconds=1, bytes=1)
        identity = f"20260101-000000-{number:06}"
        return Check(id=identity, request=request, requester=requester, cost=cost, created=NOW)

    async def in_use(self, request: CheckRequest) -> Sequence[str]:
        return sorted(self.nodes_in_use & set(request.nodes))

    async def lease(self, alertname: str, nodes: Iterable[str]) -> None:
        self.leases.append((alertname, set(nodes)))

    @property
    def nodes_of_checks(self) -> list[tuple[str, ...]]:
        return [request.nodes for request in self.taken.values()]


class Bed:
    """Alerts over a queue. `send` returns the response."""

    def __init__(self, folder: Path, nodes: Sequence[Member] = (), *rules: AlertCheckSettings):
        self.queue = Queue(nodes or members())
        self.settings = HubSettings(state_directory=str(folder), alerts=rules or (RULE,))
        self.restart()

    def restart(self) -> None:
        queue = self.queue
        self.alerts = Alerts(lambda: self.settings, queue, queue.lease)

    def send(
        self, *nodes: str, now: float = NOW, **more: Any
    ) -> tuple[tuple[str, ...], dict[str, int]]:
        answer = asyncio.run(self.alerts.take(message(*nodes, **more), now))
        return answer.checks, answer.refused


def message(
    *nodes: str,
    name: str = "NodeFabricSlow",
    status: str = "firing",
    labels: dict[str, str] | None = None,
    **more: Any,
) -> Message:
    found = [
        {
            "status": status,
            "labels": {"alertname": name, "instance": node, **(labels or {})},
            "annotations": {"summary": "slow"},
            "fingerprint": fingerprint(node, name),
        }
        for node in nodes
    ]
    return decode(json.dumps({"version": "4", "alerts": found, "receiver": "hub", **more}).encode())


def fingerprint(node: str, name: str = "NodeFabricSlow") -> str:
    return f"{name}{node}".encode().hex()[-16:]


def test_a_node_is_tested_with_good_ones_of_its_group(tmp_path: Path) -> None:
    bed = Bed(tmp_path, members(12))
    bed.send("gpu-5", name="PortDown")
    checks, refused = bed.send("gpu-3")
    assert (len(checks), refused) == (1, {})
    [request] = bed.queue.taken.values()
    assert request.nodes == ("gpu-3", "gpu-7", "gpu-9", "gpu-1")
    assert (request.kind, request.preset) == ("matrix", "latency")
    assert bed.alerts.newest(fingerprint("gpu-3")) == checks[0]


def test_nodes_in_use_are_no_partners_and_are_not_tested(tmp_path: Path) -> None:
    bed = Bed(tmp_path, members(12))
    bed.queue.nodes_in_use = {"gpu-7", "gpu-5"}
    _, refused = bed.send("gpu-3", "gpu-5")
    assert refused == {"in use by jobs": 1}
    assert bed.queue.nodes_of_checks == [("gpu-3", "gpu-9", "gpu-1", "gpu-11")]
    with pytest.raises(RefusedError, match="NodeFabricSlow of gpu-5: no check: in use by jobs"):
        bed.alerts.newest(fingerprint("gpu-5"))
    bed.queue.nodes_in_use = set()
    checks, refused = bed.send("gpu-3", "gpu-5")
    assert (len(checks), refused) == (2, {})


def test_a_message_that_comes_again_starts_nothing_until_its_time(tmp_path: Path) -> None:
    bed = Bed(tmp_path)
    first, _ = bed.send("gpu-3")
    assert bed.send("gpu-3", now=NOW + 3599)[0] == first
    bed.restart()
    assert bed.send("gpu-3", now=NOW + 3599)[0] == first
    assert len(bed.queue.taken) == 1
    assert bed.send("gpu-3", now=NOW + 3600)[0] != first
    assert len(bed.queue.taken) == 2


def test_a_clock_that_is_set_back_starts_no_second_check_and_forward_one_at_most(
    tmp_path: Path,
) -> None:
    bed = Bed(tmp_path)
    first, _ = bed.send("gpu-3")
    ahead, _ = bed.send("gpu-3", now=NOW + 5 * 3600)
    assert ahead != first
    for _ in range(2):
        assert bed.send("gpu-3")[0] == first
        assert bed.send("gpu-3", now=NOW + 5 * 3600)[0] == ahead
        bed.restart()
    assert len(bed.queue.taken) == 2


def test_an_alert_of_a_clock_that_was_ahead_does_not_keep_its_node_for_long(
    tmp_path: Path,
) -> None:
    bed = Bed(tmp_path, members(4))
    bed.send("gpu-3", name="PortDown", now=NOW + 7200)
    refused = {"no node of the same leaf without an alert is idle: there is no partner": 1}
    assert bed.send("gpu-1")[1] == refused
    bed.send("gpu-3", name="PortDown", now=NOW + 30 * 86400)
    assert bed.send("gpu-1")[1] == {}


@pytest.mark.parametrize("damage", [b'{"torn": ', b'{"a": {"x": ' + b"[" * 100_000])
def test_a_hub_without_its_file_starts_nothing_twice(tmp_path: Path, damage: bytes) -> None:
    bed = Bed(tmp_path)
    first, _ = bed.send("gpu-3")
    (tmp_path / FILE_NAME).write_bytes(damage)
    bed.restart()
    assert bed.send("gpu-3", now=NOW + 1)[0] == first
    assert len(bed.queue.taken) == 1


def test_a_resolved_alert_starts_nothing_and_its_node_is_a_partner_again(tmp_path: Path) -> None:
    bed = Bed(tmp_path, members(4))
    assert bed.send("gpu-3", status="resolved") == ((), {})
    assert not bed.queue.taken
    bed.send("gpu-3", name="PortDown")
    assert bed.send("gpu-1")[1] == {
        "no node of the same leaf without an alert is idle: there is no partner": 1
    }
    bed.send("gpu-3", name="PortDown", status="resolved")
    assert bed.send("gpu-1")[1] == {}
    assert bed.queue.nodes_of_checks == [("gpu-1", "gpu-3")]


def test_a_hundred_nodes_are_a_check_per_group(tmp_path: Path) -> None:
    bed = Bed(tmp_path, members(200, leaves=4))
    checks, refused = bed.send(*(f"gpu-{n}" for n in range(100)))
    assert len(checks) == 4
    assert all(len(nodes) == MAX_SUSPECTS + 3 for nodes in bed.queue.nodes_of_checks)
    assert sum(refused.values()) == 100 - 4 * MAX_SUSPECTS
    assert set(refused) == {f"more than 16 nodes of leaf=l{n} at once" for n in range(4)}
    assert bed.queue.leases == [("NodeFabricSlow", {f"gpu-{n}" for n in range(100)})]


def test_a_group_per_node_starts_no_check_per_node(tmp_path: Path) -> None:
    """What is left comes with the next message."""
    bed = Bed(tmp_path, members(200, leaves=100))
    names = [f"gpu-{n}" for n in range(100)]
    checks, refused = bed.send(*names)
    assert (len(checks), refused) == (MAX_GROUPS, {"more than 64 groups of nodes at once": 36})
    checks, refused = bed.send(*names)
    assert (len(checks), refused) == (100, {})


def test_what_alertmanager_left_out_is_counted(tmp_path: Path) -> None:
    _, refused = Bed(tmp_path).send("gpu-3", truncatedAlerts=7)
    assert refused == {"left out by Alertmanager (max_alerts)": 7}


def test_an_unknown_node_and_an_alert_without_a_check(tmp_path: Path) -> None:
    bed = Bed(tmp_path)
    assert bed.send("pc-1")[1] == {"node 'pc-1' is not on the lists of nodes": 1}
    assert bed.send("gpu-1", name="Other")[1] == {"no check is set for this alert (alerts)": 1}
    assert not bed.queue.taken


def test_a_drill_starts_nothing_and_its_node_counts_as_good(tmp_path: Path) -> None:
    bed = Bed(tmp_path, members(4, leaves=1))
    checks, refused = bed.send("gpu-1", labels={"drill": "true"})
    assert (checks, refused) == ((), {"a drill: nothing acts on it": 1})
    assert not any(nodes for _, nodes in bed.queue.leases)
    bed.send("gpu-3")
    assert bed.queue.nodes_of_checks == [("gpu-3", *bed.queue.nodes_of_checks[0][1:])]
    assert "gpu-1" in bed.queue.nodes_of_checks[0]


@pytest.mark.parametrize("kind", ["conflict", "invalid"])
def test_a_refusal_is_a_stored_reason(tmp_path: Path, kind: Any) -> None:
    bed = Bed(tmp_path)
    bed.queue.refusal = RefusedError(kind, "the reason")
    assert bed.send("gpu-3") == ((), {"the reason": 1})
    bed.restart()
    with pytest.raises(RefusedError, match="the reason"):
        bed.alerts.newest(fingerprint("gpu-3"))


@pytest.mark.parametrize("kind", ["unavailable", "busy"])
def test_a_store_that_fails_or_a_full_queue_is_tried_again(tmp_path: Path, kind: Any) -> None:
    bed = Bed(tmp_path)
    bed.queue.refusal = RefusedError(kind, "disk full, or queue")
    with pytest.raises(RefusedError) as error:
        bed.send("gpu-3")
    assert error.value.kind == "unavailable"
    bed.queue.refusal = None
    assert len(bed.send("gpu-3")[0]) == 1


def test_a_check_of_each_node_needs_no_partner(tmp_path: Path) -> None:

    request = request_of(Group(RULE, ("gpu-1",), ("gpu-2",)), set(), "node")
    assert (request.kind, request.nodes) == ("node", ("gpu-1",))


@pytest.mark.parametrize(
    ("labels", "node"),
    [
        ({"instance": "gpu-1:9855"}, "gpu-1"),
        ({"instance": "gpu-1"}, "gpu-1"),
        ({"instance": "10.0.0.1:9855", "node": "gpu-1"}, "gpu-1"),
        ({"instance": "gpu-1:9855", "node": "fd00::1"}, "gpu-1"),
        ({"instance": "[fd00::1]:9855"}, "fd00::1"),
        ({"instance": "fd00::1"}, "fd00::1"),
        ({"instance": "[fd00::1]"}, "fd00::1"),
        ({"instance": "fd00::10"}, None),
        ({"instance": "gpu-10"}, None),
        ({}, None),
    ],
)
def test_the_node_of_an_alert(labels: dict[str, str], node: str | None) -> None:
    listed = {name: Member(name=name, host=name, port=1) for name in ("gpu-1", "fd00::1")}
    assert node_of(labels, listed) == node


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"\xff\xfe",
        b"[]",
        b'{"version": "3", "alerts": []}',
        b'{"version": "4", "alerts": [{"status": "firing", "labels": {}, "fingerprint": "../x"}]}',
        b'{"version": "4", "alerts": [{"status": "firing", "labels": {"a": 1}}]}',
        b'{"version": "4", "alerts": ' + b"[" * 100_000,
    ],
)
def test_a_hostile_body_is_refused_in_one_line(body: bytes) -> None:
    with pytest.raises(ValueError, match=r"^not a message of Alertmanager") as error:
        decode(body)
    assert "\n" not in str(error.value)


TEXT = st.text(max_size=20)


@given(st.lists(st.dictionaries(st.sampled_from(["alertname", "instance", "node"]), TEXT)))
def test_any_labels_get_an_answer(labels: list[dict[str, str]]) -> None:

    alerts = [
        {"status": "firing", "fingerprint": str(number), "labels": own}
        for number, own in enumerate(labels)
    ]
    found = decode(json.dumps({"version": "4", "alerts": alerts}).encode())
    plan = grouped(found.alerts, {"NodeFabricSlow": RULE}, Known({}, set(), {}))
    assert len(plan.reasons) == len(alerts)
