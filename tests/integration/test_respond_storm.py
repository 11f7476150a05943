"""A storm of faults, conflicts and a long outage, at a stand-in of an API server."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

import pytest

from nodevitals.checks.model import Requester
from nodevitals_hub.isolation.schedulers.kubernetes_objects import MARK
from testbed.kubernetes_api.nodes import NodeApi
from testbed.nodehub import XID, node_hub

ADA = Requester(trigger="page", name="ada", role="act")
MANY = [f"gpu-{number}" for number in range(1, 1001)]
NO_BREAKER = {"breaker_nodes": 10_000, "breaker_share": 1.0}


def started(folder: Path, monkeypatch: pytest.MonkeyPatch, nodes: list[str]) -> NodeApi:
    api = NodeApi(folder, nodes)
    monkeypatch.setenv("KUBECONFIG", str(api.kubeconfig))
    return api


def run(steps: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(steps, 120))


@pytest.mark.parametrize(
    ("limits", "most"),
    [
        ({}, 0),
        ({**NO_BREAKER, "nodes": 4, "share": 1.0, "per_hour": 100}, 4),
        pytest.param(
            {**NO_BREAKER, "nodes": 100, "share": 0.006, "per_hour": 100},
            6,
            marks=pytest.mark.proof("kills"),
        ),
        pytest.param(
            {**NO_BREAKER, "nodes": 100, "share": 1.0, "per_hour": 3},
            3,
            marks=pytest.mark.proof("kills"),
        ),
    ],
    ids=["breaker", "nodes", "share", "per_hour"],
)
def test_500_nodes_with_a_fault(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limits: dict[str, Any], most: int
) -> None:
    """At most the set number is cordoned, also when the hub starts again in the storm."""
    storm = [(node, "nvidia_xid") for node in MANY[:500]]

    with started(tmp_path, monkeypatch, MANY) as api:

        async def lasts(seconds: float) -> None:
            async with node_hub(tmp_path, api, MANY, limits=limits) as hub:
                await hub.rounds(seconds, *storm)

        run(lasts(105))
        run(lasts(60))
        assert len(api.cordoned()) == len(api.cordons) == most
        assert not api.denied


def test_conflicts_are_tried_again_and_lose_no_change_of_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with started(tmp_path, monkeypatch, MANY[:20]) as api:

        async def steps() -> None:
            api.conflicts = 3
            async with node_hub(tmp_path, api) as hub:
                await hub.rounds(75, XID)
                assert api.cordoned() == []
                await hub.rounds(75, XID)
                assert (await hub.newest()).acted is not None

        run(steps())
        assert (api.conflicts, api.cordons) == (0, [("gpu-1", True)])
        assert api.annotations("gpu-1")["site/own"] == "x"


def test_an_hour_without_the_api_server_loses_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither what was decided before it, nor what is decided meanwhile, nor a person's return;
    the hub starts again in the middle.
    """
    second, third = ("gpu-2", "nvidia_xid"), ("gpu-3", "nvidia_xid")
    faults = (XID, second, third)

    with started(tmp_path, monkeypatch, MANY[:20]) as api:

        async def before() -> None:
            async with node_hub(tmp_path, api) as hub:
                await hub.rounds(120, third)
                assert api.cordoned() == ["gpu-3"]
                api.fail(503)
                await hub.rounds(120, XID, third)
                await hub.found.isolations.book.give_back((await hub.newest("gpu-3")).id, ADA)
                await hub.found.rounds(1800, *faults, every=60)

        async def after() -> None:
            async with node_hub(tmp_path, api) as hub:
                await hub.found.rounds(1800, *faults, every=60)
                assert api.cordons == [("gpu-3", True)]
                api.heal()
                await hub.rounds(60, *faults)
                for node in ("gpu-1", "gpu-2"):
                    assert api.annotations(node)[MARK] == (await hub.newest(node)).id

        run(before())
        run(after())
        assert api.cordons[0] == ("gpu-3", True)
        wanted = [("gpu-1", True), ("gpu-2", True), ("gpu-3", False)]
        assert sorted(api.cordons[1:]) == wanted
