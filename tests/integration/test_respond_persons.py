"""People and other clients change nodes while the hub works; a fault that comes and goes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from nodevitals_hub.isolation.schedulers.kubernetes_objects import MARK
from testbed.faultprometheus import FaultPrometheus
from testbed.kubernetes_api.api import Call
from testbed.kubernetes_api.nodes import NodeApi
from testbed.nodehub import NODES, XID, NodeHub, node_hub

OTHER = "20200101-000000-zzzzzz"
Edit = Callable[[NodeApi], None]


@pytest.fixture
def api(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[NodeApi]:
    with NodeApi(tmp_path, NODES) as found:
        monkeypatch.setenv("KUBECONFIG", str(found.kubeconfig))
        yield found


def run(steps: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(steps, 100))


def recreate(api: NodeApi, cordoned: bool = False) -> None:
    """The node is deleted, and one with its name registers."""
    del api.nodes["gpu-1"]
    api.add("gpu-1")
    api.nodes["gpu-1"]["metadata"]["uid"] = "another"
    if cordoned:
        api.cordon("gpu-1")


def uncordon(api: NodeApi) -> None:
    api.cordon("gpu-1", cordoned=False)


def delete(api: NodeApi) -> None:
    del api.nodes["gpu-1"]


def take(api: NodeApi) -> None:
    """A person makes our cordon their own."""
    api.unmark("gpu-1")


EDITS: dict[str, tuple[Edit, str, list[str]]] = {
    "uncordoned": (uncordon, "canceled", []),
    "taken": (take, "canceled", ["gpu-1"]),
    "remarked": (lambda api: api.mark("gpu-1", OTHER), "canceled", ["gpu-1"]),
    "recreated": (recreate, "canceled", []),
    "recreated_cordoned": (lambda api: recreate(api, True), "canceled", ["gpu-1"]),
    "deleted": (delete, "isolated", []),
}


@pytest.mark.parametrize("edit", EDITS)
def test_what_a_person_did_to_a_node_out_of_service_stays(
    tmp_path: Path, api: NodeApi, edit: str
) -> None:
    change, state, cordoned = EDITS[edit]

    async def steps() -> None:
        async with node_hub(tmp_path, api) as hub:
            await hub.rounds(90, XID)
            assert api.cordoned() == ["gpu-1"]
            change(api)
            acts = len(api.cordons)
            await hub.rounds(450, XID)
            assert (await hub.state(), api.cordoned()) == (state, cordoned)
            assert len(api.cordons) == acts

    run(steps())


def test_a_node_that_is_gone_and_comes_back_is_not_returned_twice(
    tmp_path: Path, api: NodeApi
) -> None:
    async def steps() -> None:
        async with node_hub(tmp_path, api) as hub:
            await hub.rounds(90, XID)
            delete(api)
            await hub.rounds(60, XID)
            api.add("gpu-1")
            await hub.rounds(60, XID)
            assert await hub.state() == "canceled"
            assert api.cordons == [("gpu-1", True)]

    run(steps())


MOMENTS = {
    "before_our_read": ("get", "nodes"),
    "before_our_write": ("patch", "nodes"),
    "after_our_write": ("patch", "nodes/status"),
}


@pytest.mark.parametrize("moment", MOMENTS)
@pytest.mark.parametrize("cordon", [True, False], ids=["cordon", "uncordon"])
def test_a_person_who_is_there_at_the_same_moment_wins(
    tmp_path: Path, api: NodeApi, moment: str, cordon: bool
) -> None:
    """A cordon before our write, or an uncordon after it; the others change nothing."""
    left = [1]

    def edits(call: Call) -> str:
        if (call.verb, call.resource) == MOMENTS[moment] and left[0]:
            left[0] = 0
            api.cordon("gpu-1", cordon)
        return ""

    async def steps() -> None:
        async with node_hub(tmp_path, api) as hub:
            api.trouble = edits
            await hub.rounds(150, XID)
            after = moment == "after_our_write"
            by_person = cordon != after
            assert await hub.state() == ("canceled" if by_person else "isolated")
            assert api.cordoned() == (["gpu-1"] if cordon or not after else [])
            has_mark = MARK in api.annotations("gpu-1")
            assert has_mark == (not by_person)

    run(steps())


def test_a_fault_that_comes_and_goes(
    tmp_path: Path, api: NodeApi, caplog: pytest.LogCaptureFixture
) -> None:
    """It is returned once, then kept out: few acts, and a bounded log."""
    caplog.set_level("INFO", "nodevitals")

    async def good(*_: object) -> tuple[bool | None, str, str]:
        return True, "good", ""

    async def steps() -> None:
        back = {"enabled": True, "clean": 900.0}
        async with node_hub(tmp_path, api, back=back, test=good, every=60.0) as hub:
            for _ in range(5):
                await hub.found.rounds(300, XID, every=60)
                await hub.found.rounds(1320, every=60)
            assert api.cordons.count(("gpu-1", True)) == 2
            assert await hub.state() == "kept"

    run(steps())
    said = [one.getMessage() for one in caplog.records if one.name.startswith("nodevitals")]
    assert len(said) <= 40, said


def test_faults_of_another_cluster_with_the_same_names_do_nothing(
    tmp_path: Path, api: NodeApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = FaultPrometheus.rows

    def elsewhere(self: FaultPrometheus) -> list[dict[str, str]]:
        ours = [row | {"cluster": "ours"} for row in rows(self) if "fault" not in row]
        return ours + [row | {"cluster": "other"} for row in rows(self)]

    monkeypatch.setattr(FaultPrometheus, "rows", elsewhere)

    async def steps() -> None:
        async with node_hub(tmp_path, api) as hub:
            await named(hub, "ours")
            await hub.rounds(300, XID)
            assert await hub.state() == ""
            assert not hub.found.isolations.queries.problem
            await named(hub, "")
            await hub.rounds(300, XID)
            assert "several clusters" in hub.found.isolations.queries.problem
            assert api.cordons == []

    run(steps())


async def named(hub: NodeHub, cluster: str) -> None:
    settings = hub.found.hub.settings
    hub.found.hub.settings = replace(settings, cluster=cluster)


@pytest.mark.parametrize("name", ["GPU-1", "gpu-1.example.org"])
def test_a_node_that_has_another_name_at_the_scheduler_is_refused(
    tmp_path: Path, api: NodeApi, name: str
) -> None:
    """It is not guessed which one it is."""
    api.nodes[name] = api.nodes.pop("gpu-1")
    api.nodes[name]["metadata"]["name"] = name

    async def steps() -> None:
        async with node_hub(tmp_path, api) as hub:
            await hub.rounds(120, XID)
            one = await hub.newest()
            assert one.state == "refused"
            assert "no such node" in one.reason
            assert api.cordons == []

    run(steps())
