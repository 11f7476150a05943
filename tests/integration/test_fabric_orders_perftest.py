"""Orders for perftest, whose stand-ins check every argument, beside the tests of the plan."""

from __future__ import annotations

import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from nodevitals.probes.fabric.tools.report import NOT_TESTED
from testbed.loopback import DEVICE, TEST, TOKEN, Loopback
from testbed.node import Node, wait_until
from testbed.ordering import HUB_NAME, HUB_TOKEN, OrderClient, order

A, B = "127.0.0.2", "127.0.0.3"
GID, TRAFFIC_CLASS = 5, 106
BANDWIDTH = {
    "tool": "perftest",
    "device": DEVICE,
    "queue_pairs": 8,
    "gid_index": GID,
    "traffic_class": TRAFFIC_CLASS,
}
LATENCY = {**BANDWIDTH, "queue_pairs": 1}
SIZES = [8 << (4 * power) for power in range(7)]


def made(folder: Path, **settings: Any) -> Loopback:
    """Two agents that take orders. A run that lasts longer than its timeout ends the server,
    and on a busy machine 300 ms are not enough.
    """
    settings = {"interval": "2s", "timeout": "2s", **settings}
    (folder / "hub-token").write_text(HUB_TOKEN)
    hub = {"token_file": str(folder / "hub-token"), "names": [HUB_NAME]}
    return Loopback(folder, 2, hub=hub, **settings)


def start(loopback: Loopback) -> None:
    """Start the agents, and wait until they listen."""
    loopback.start()
    for node in loopback.nodes.values():
        wait_until(partial(_is_member, node))


def _is_member(node: Node) -> bool:
    return node.value("nodevitals_fabric_members") == 2


def client(loopback: Loopback, name: str) -> OrderClient:
    if not (loopback.folder / HUB_NAME).exists():
        loopback.issue(HUB_NAME)
    port = loopback.proxies[name].port
    return OrderClient(name, port, loopback.folder / "ca.pem", loopback.folder / HUB_NAME)


def accepted(loopback: Loopback, wanted: dict[str, Any], side: str) -> bool:
    """Whether this side accepts the order now: a planned test may run there."""
    status, body = client(loopback, wanted[side]).put({**wanted, "node": wanted[side]})
    assert status == 200 or body["refusal"] == "busy", body
    return status == 200


def ordered(loopback: Loopback, *tests: dict[str, Any]) -> dict[str, Any]:
    """The state of the source, A, once an order for these tests is done."""

    def state() -> dict[str, Any] | None:
        wanted = order(A, B, *tests)
        if not accepted(loopback, wanted, "target"):
            return None
        if not accepted(loopback, wanted, "source"):
            client(loopback, B).delete(wanted["id"])
            return None
        ended: dict[str, Any] = wait_until(lambda: _ended(loopback, wanted), 60)
        client(loopback, B).delete(wanted["id"])
        return ended

    found: dict[str, Any] = wait_until(state, 40)
    return found


def _ended(loopback: Loopback, wanted: dict[str, Any]) -> dict[str, Any] | None:
    status, body = client(loopback, A).get(wanted["id"], 5)
    assert status == 200, body
    return body if body["state"] == "done" else None


def on_roce(loopback: Loopback) -> None:
    for node in loopback.nodes.values():
        node.environment["FAKE_DEVICE"] = f"{DEVICE}:1:{GID}"
        node.environment["FAKE_TCLASS"] = str(TRAFFIC_CLASS)


@pytest.fixture(scope="module")
def roce(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Loopback]:
    """Two agents without a plan; only one GID and one traffic class work between them."""
    with made(tmp_path_factory.mktemp("roce"), tests=[], slot="60s") as loopback:
        on_roce(loopback)
        start(loopback)
        yield loopback


def test_sweep_with_eight_queue_pairs(roce: Loopback) -> None:
    sweep = [{**BANDWIDTH, "operation": "write_bw", "message_bytes": size} for size in SIZES]
    timed = {**sweep[-1], "seconds": 10, "timeout": 30}
    state = ordered(roce, *sweep, timed)
    assert [one["outcome"] for one in state["reports"]] == ["ok"] * 8, state
    sizes = [one["rows"][0]["message_bytes"] for one in state["reports"]]
    assert sizes == [*SIZES, SIZES[-1]]
    assert state["versions"]["perftest"] == "6.06"


def test_other_operations_with_eight_queue_pairs(roce: Loopback) -> None:
    operations = ("read_bw", "send_bw")
    state = ordered(roce, *({**BANDWIDTH, "operation": one} for one in operations))
    assert [one["outcome"] for one in state["reports"]] == ["ok"] * 2, state


@pytest.mark.parametrize("operation", ["send_lat", "write_lat", "read_lat"])
def test_latencies_with_a_given_gid(roce: Loopback, operation: str) -> None:
    test = {**LATENCY, "operation": operation, "message_bytes": 8}
    (report,) = ordered(roce, test)["reports"]
    assert report["rows"][0]["latency_seconds"]["median"] == pytest.approx(1.47e-6)
    (report,) = ordered(roce, {**test, "gid_index": 3})["reports"]
    assert report["reason"] == "no_gid"
    reports = ordered(roce, {**test, "traffic_class": 0}, test)["reports"]
    assert [report["outcome"] for report in reports] == ["failed", "ok"]


def test_an_order_goes_on_after_a_failed_test(roce: Loopback) -> None:
    """Of what failed, only larger sizes are left out; each report belongs to its test."""
    gone = {**BANDWIDTH, "device": "mlx5_9", "operation": "write_bw", "message_bytes": 8}
    larger, smaller = ({**gone, "message_bytes": size} for size in (64, 4))
    state = ordered(
        roce,
        gone,
        larger,
        smaller,
        {**gone, "device": DEVICE},
        {**LATENCY, "operation": "read_lat"},
    )
    found = [(one.get("reason"), one["message"]) for one in state["reports"]]
    assert [reason for reason, _ in found] == ["no_device"] * 3 + [None] * 2
    assert [text.startswith(NOT_TESTED) for _, text in found] == [False, True, False, False, False]
    commands = [run.get("command", "").split(" -p ")[0] for run in state["runs"]]
    own = f"-d {DEVICE} -i 1 -x {GID}"
    assert commands == ["", "", "", f"ib_write_bw {own}", f"ib_read_lat {own}"]
    assert "RDMA_Read Latency Test" in state["runs"][4]["output"]


def test_rails_crossed(tmp_path: Path) -> None:
    """Each side uses its own device, and the promised rate of each port is that of its device."""
    with made(tmp_path, tests=[], slot="60s") as loopback:
        loopback.nodes[B].environment["FAKE_DEVICE"] = "mlx5_3:1:"
        start(loopback)
        crossed = {**TEST, "peer_device": "mlx5_3"}
        (report,) = ordered(loopback, crossed)["reports"]
        assert report["outcome"] == "ok", report
        (report,) = ordered(loopback, TEST)["reports"]
        assert report["reason"] == "no_device", report
        wrong = order(A, B, {**TEST, "peer_device": "-x"})
        status, body = client(loopback, A).put({**wrong, "node": A})
        assert (status, body["refusal"]) == (409, "invalid")
        assert body["message"] == "tests[0].peer_device: '-x' is no name of a device"


def test_planned_tests_and_orders_exclude_each_other(tmp_path: Path) -> None:
    """Each of them is done, and then the plan goes on."""
    planned = {**TEST, "timeout": "1s"}
    with made(tmp_path, tests=[planned], slot="3s") as loopback:
        for node in loopback.nodes.values():
            node.environment["FAKE_SECONDS"] = "0.5"
        start(loopback)
        runs = "nodevitals_fabric_runs_total"

        def total() -> float:
            found = [node.value(runs, outcome="ok") for node in loopback.nodes.values()]
            return sum(one or 0.0 for one in found)

        def refused() -> bool:
            wanted = order(A, B, {**TEST, "message_bytes": 8})
            if not accepted(loopback, wanted, "target"):
                return True
            client(loopback, B).delete(wanted["id"])
            return False

        wait_until(refused, 40, "a planned test, during which no order is accepted")
        many = [{**TEST, "message_bytes": 1 << power} for power in range(2)]
        state = ordered(loopback, *many)
        assert [one["outcome"] for one in state["reports"]] == ["ok"] * 2, state
        before = total()
        wait_until(lambda: total() > before, 40, "a planned test after the order")


def past_slot_seconds() -> int:
    """Length of slots of which the present one is past its tests, and lasts minutes still."""
    now = time.time()
    return next(length for length in range(6000, 60_000) if 0.92 < now % length / length < 0.94)


def test_result_of_a_planned_size_is_exposed(tmp_path: Path) -> None:
    """It is that of the planned test; other sizes are the hub's alone."""
    planned = {**TEST, "timeout": "1s"}
    with made(tmp_path, tests=[planned], slot=f"{past_slot_seconds()}s") as loopback:
        start(loopback)
        node = loopback.nodes[A]
        family = "nodevitals_fabric_bandwidth_bytes_per_second"
        assert ordered(loopback, {**TEST, "message_bytes": 8})["reports"][0]["outcome"] == "ok"
        wait_until(lambda: (node.value("nodevitals_fabric_orders_total", outcome="ok") or 0) >= 1)
        assert node.value(family) is None
        assert ordered(loopback, TEST)["reports"][0]["outcome"] == "ok"
        wait_until(lambda: node.value(family, peer=B, message_bytes="65536"))


def test_budget_holds_for_orders(tmp_path: Path) -> None:
    budget = {"seconds_per_hour": 3600, "bytes_per_hour": 3 * 65_536_000}
    with made(tmp_path, tests=[], slot="60s", budget=budget) as loopback:
        start(loopback)
        sweep = [{**TEST, "ib_port": 1, "iterations": 1000 - number} for number in range(5)]
        state = ordered(loopback, *sweep)
        assert len(state["reports"]) == 3
        assert state["skipped"] in ("budget", "peer_busy")


@pytest.mark.parametrize(
    ("token", "names"), [(TOKEN, "the hub's token is that of the agents"), ("short", "at least 16")]
)
def test_unusable_token_of_the_hub_is_an_error(tmp_path: Path, token: str, names: str) -> None:
    with made(tmp_path, tests=[], slot="60s") as loopback:
        (tmp_path / "hub-token").write_text(token)
        node = loopback.nodes[A]
        with node:
            wait_until(lambda: names in node.log())
            wait_until(lambda: node.value("nodevitals_probe_success", probe="fabric") == 0)
