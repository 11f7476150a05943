"""Second-level monitoring of one agent, asked for as the hub does."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from testbed.loopback import TOKEN, Loopback
from testbed.node import Node, wait_until
from testbed.ordering import HUB_NAME, HUB_TOKEN, OrderClient

PATH = "/fabric/v1/lease"
NAME = "127.0.0.2"
LEASED = "nodevitals_probe_lease_interval_seconds"
SUCCESS = "nodevitals_probe_last_success_timestamp_seconds"


class Leased(Loopback):
    """One agent with the probe `node` every 15 s, and a folder with the hub's certificate."""

    def __init__(self, folder: Path) -> None:
        token = folder / "hub-token"
        token.write_text(HUB_TOKEN + "\n")
        hub = {"token_file": str(token), "names": [HUB_NAME]}
        settings = {"interval": "1s", "timeout": "1s", "slot": "60s"}
        super().__init__(folder, 1, hub=hub, tests=[], **settings)

    def __enter__(self) -> Leased:
        super().__enter__()
        self.issue(HUB_NAME)
        self.node: Node = self.nodes[NAME]
        self.write()
        self.node.start()
        wait_until(lambda: self.node.value("nodevitals_fabric_members") == 1)
        wait_until(lambda: self.node.value(SUCCESS, probe="node"))
        return self

    def write(self, **sections: Any) -> None:
        """Write the configuration, with these sections of probes."""
        config = self.config(NAME)
        config["probes"].update({"node": {"interval": "15s"}, **sections})
        self.node.write(config)

    def client(self, token: str = HUB_TOKEN, certificate: str = HUB_NAME) -> OrderClient:
        """The hub, or what claims to be."""
        port = self.proxies[NAME].port
        return OrderClient(
            NAME, port, self.folder / "ca.pem", self.folder / certificate, token=token
        )

    def lease(self, *probes: str, seconds: float = 60, **more: Any) -> tuple[int, dict[str, Any]]:
        """Ask for a lease as the hub."""
        body = {"node": NAME, "probes": probes, "seconds": seconds, **more}
        return self.client().request("PUT", PATH, json.dumps(body).encode())

    def interval(self) -> float | None:
        """The interval under a lease."""
        return self.node.value(LEASED, probe="node")

    def reset(self) -> None:
        """End the lease, and configure the agent as at first."""
        assert self.client().request("DELETE", PATH)[0] == 200
        self.write()
        self.node.hang_up()
        interval = "nodevitals_probe_interval_seconds"
        wait_until(lambda: self.node.value(interval, probe="node") == 15)
        wait_until(lambda: self.interval() is None)
        wait_until(lambda: self.node.value(SUCCESS, probe="node"))


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Leased]:
    with Leased(tmp_path_factory.mktemp("leased")) as made:
        yield made


@pytest.fixture
def leased(shared: Leased) -> Iterator[Leased]:
    """The agent; after each test, it is as before."""
    yield shared
    shared.reset()


def test_probe_runs_every_second_until_the_lease_is_not_renewed(leased: Leased) -> None:
    status, body = leased.lease("node", "rdma", "fabric", "history")
    states = {"node": "active", "rdma": "off", "fabric": "excluded", "history": "excluded"}
    assert (status, body["states"]) == (200, states)
    wait_until(lambda: leased.interval() == 1)
    moments: set[float] = set()

    def look() -> bool:
        moments.add(leased.node.value(SUCCESS, probe="node") or 0.0)
        return len(moments) >= 4

    wait_until(look, 40)  # as many runs of 15 s take longer
    assert leased.lease("node", seconds=1)[0] == 200
    wait_until(lambda: leased.interval() is None)
    assert leased.node.value("nodevitals_probe_interval_seconds", probe="node") == 15
    assert leased.node.value("nodevitals_probe_success", probe="node") == 1


def test_hub_ends_a_lease(leased: Leased) -> None:
    assert leased.lease("node")[0] == 200
    wait_until(lambda: leased.interval() == 1)
    assert leased.client().request("DELETE", PATH)[0] == 200
    wait_until(lambda: leased.interval() is None)


def test_restart_ends_a_lease_and_a_reload_keeps_it(leased: Leased) -> None:
    assert leased.lease("node")[0] == 200
    wait_until(lambda: leased.interval() == 1)
    leased.write(node={"interval": "14s"})
    leased.node.hang_up()
    interval = "nodevitals_probe_interval_seconds"
    wait_until(lambda: leased.node.value(interval, probe="node") == 14)
    wait_until(lambda: leased.interval() == 1)
    leased.node.end()
    leased.node.start()
    wait_until(lambda: leased.node.value(SUCCESS, probe="node"))
    wait_until(lambda: leased.node.value("nodevitals_fabric_members") == 1)
    assert leased.interval() is None


def test_reload_that_turns_the_probe_off_ends_its_lease(leased: Leased) -> None:
    assert leased.lease("node")[0] == 200
    wait_until(lambda: leased.interval() == 1)
    leased.write(node={"enabled": False})
    leased.node.hang_up()
    wait_until(lambda: leased.node.value(SUCCESS, probe="node") is None)
    assert leased.lease("node")[1]["states"] == {"node": "off"}


def test_only_the_hub_gets_a_lease(leased: Leased) -> None:
    """A node has a certificate of the authority, and perhaps a stolen token."""
    body = json.dumps({"node": NAME, "probes": ["node"], "seconds": 60}).encode()
    for token, certificate, expected in (
        (HUB_TOKEN, NAME, 403),
        (TOKEN, HUB_NAME, 401),
        ("x" * 20, HUB_NAME, 401),
    ):
        client = leased.client(token, certificate)
        assert client.request("PUT", PATH, body)[0] == expected
        assert client.request("DELETE", PATH)[0] == expected
    assert leased.interval() is None


def test_what_a_lease_cannot_be_is_refused(leased: Leased) -> None:
    bodies = [b"", b"{", b"[]"]
    wrong: dict[str, Any]
    for wrong in (
        {"node": "127.0.0.9"},
        {"seconds": 61},
        {"seconds": 0},
        {"probes": []},
        {"probes": ["node"] * 9},
        {"probes": ["../etc"]},
        {"interval": 0.01},
    ):
        fields = {"node": NAME, "probes": ["node"], "seconds": 60, **wrong}
        bodies.append(json.dumps(fields).encode())
    for body in bodies:
        status, message = leased.client().request("PUT", PATH, body)
        assert status == 409, body
        assert "\n" not in message["message"]
    assert leased.interval() is None


def test_collect_takes_several_probes_in_one_value(leased: Leased) -> None:
    """As service discovery sets it; the agent's own families are then not served twice."""
    text = leased.node.get("/metrics?collect=node,fabric").text
    assert "nodevitals_node_time_seconds" in text
    assert "nodevitals_fabric_members" in text
    assert "nodevitals_build_info" not in text
    assert leased.node.get("/metrics?collect=nod").status_code == 400
