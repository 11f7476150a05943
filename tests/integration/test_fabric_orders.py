"""Tests that the hub orders: agents in network namespaces, real iperf3, and a client as the hub."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from testbed.fabric import Fabric
from testbed.node import wait_until
from testbed.ordering import order

TCP = {"tool": "iperf3", "operation": "tcp", "device": "fab0", "iterations": 16}
MEMBERS = "nodevitals_fabric_members"


@pytest.fixture
def fabric(tmp_path: Path) -> Iterator[Fabric]:
    """Three nodes without a planned test."""
    with Fabric(tmp_path, 3, hub={}, slot="60s", tests=[]) as made:
        for name, node in made.nodes.items():
            node.write(made.config(name))
            node.start()
        for node in made.nodes.values():
            wait_until(lambda node=node: node.value(MEMBERS) == 3)
        yield made


def place(made: Fabric, wanted: dict[str, Any]) -> None:
    """Order it on the target, then on the source."""
    for side in ("target", "source"):
        status, body = client(made, wanted[side]).put({**wanted, "node": wanted[side]})
        assert status == 200, body


def client(made: Fabric, address: str, **more: str) -> Any:
    name = next(name for name, own in made.addresses.items() if own == address)
    return made.client(name, **more)


def done(made: Fabric, wanted: dict[str, Any], side: str = "source") -> dict[str, Any]:
    """The state on one side once it is done."""

    def state() -> dict[str, Any] | None:
        status, body = client(made, wanted[side]).get(wanted["id"], 5)
        assert status == 200, body
        return body if body["state"] == "done" else None

    found: dict[str, Any] = wait_until(state, 60)
    return found


def test_ordered_sizes_are_measured_one_after_the_other(fabric: Fabric) -> None:
    a, b, _ = fabric.addresses.values()
    sizes = (4096, 65536, 1048576)
    tests = [{**TCP, "message_bytes": size, "traffic_class": 8} for size in sizes]
    wanted = order(a, b, *tests)
    place(fabric, wanted)
    state = done(fabric, wanted)
    assert [one["outcome"] for one in state["reports"]] == ["ok"] * 3, state
    assert [one["rows"][0]["message_bytes"] for one in state["reports"]] == list(sizes)
    assert state["skipped"] == ""
    assert done(fabric, wanted, "target")["skipped"] == ""
