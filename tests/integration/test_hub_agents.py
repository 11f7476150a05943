"""A hub with real agents: network namespaces, mutual TLS, iperf3."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from testbed.fabric import FABRIC_PORT, Fabric, FabricNode
from testbed.hub import HubProcess
from testbed.node import wait_until

TEST = {"tool": "iperf3", "device": "fab0", "seconds": 1}
COUNT = 4


def hub_config(fabric: Fabric) -> dict[str, Any]:
    """The sections of a hub that may order tests on these agents."""
    folder = fabric.folder / "hub"
    files = {"cert_file": f"{folder}/cert.pem", "key_file": f"{folder}/key.pem"}
    tls = {**files, "ca_file": str(fabric.folder / "ca.pem")}
    targets = [f"{address}:{FABRIC_PORT}" for address in fabric.addresses.values()]
    return {
        "agents": {"token_file": str(fabric.folder / "hub-token"), "tls": tls},
        "nodes": {"static": [{"targets": targets, "labels": {"pool": "train"}}]},
    }


def start(fabric: Fabric, node: FabricNode, name: str) -> None:
    node.write(fabric.config(name))
    node.start()
    wait_until(lambda: node.value("nodevitals_fabric_members") == COUNT)


def executed(fabric: Fabric) -> float:
    """Number of orders that were executed, as their sources and targets count them."""
    name = "nodevitals_fabric_orders_total"
    return sum(node.value(name, outcome="ok") or 0.0 for node in fabric.nodes.values())


def test_a_matrix_survives_a_kill_of_the_hub_and_names_the_slow_node(tmp_path: Path) -> None:
    """Each pair is tested once, though the hub is killed while tests run."""
    settings: dict[str, Any] = {"slot": "60s", "tests": [], "gate": {"require_idle": False}}
    settings["budget"] = {"seconds_per_hour": 3600, "bytes_per_hour": 10**15}
    place = tmp_path / "service"
    place.mkdir()
    with Fabric(tmp_path, COUNT, hub={}, **settings) as fabric:
        with ThreadPoolExecutor(2) as threads:
            list(threads.map(lambda one: start(fabric, one[1], one[0]), fabric.nodes.items()))
        for name in fabric.names:
            fabric.throttle(name, "40mbit" if name == "node-3" else "200mbit")
        with HubProcess(place, **hub_config(fabric)) as hub:
            check = hub.submit(kind="matrix", where={"pool": "train"}, test=TEST)
            wait_until(lambda: hub.detail(check.id).results, 60, "the first result")
            hub.kill()
            hub.start()
            detail = hub.ended(check.id, 120)
            verdict = detail.check.verdict
            assert verdict is not None
            # Six pairs in both directions, and those of the slow node again.
            runs = len(detail.results)
            assert runs > 12
            assert [one.skipped for one in detail.results] == [""] * runs, detail.results
            assert verdict.outcome == "bad", verdict
            assert [one.subject for one in verdict.findings] == [fabric.addresses["node-3"]]
        wait_until(lambda: executed(fabric) == 2 * runs, 30, "the counters of the orders")
