"""Marks that come to nodes after their isolations have ended, and marks that nobody knows."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterator
from pathlib import Path
from typing import Any

import pytest

from nodevitals.checks.model import Requester
from nodevitals_hub.isolation.schedulers.kubernetes_objects import MARK
from testbed.kubernetes_api.failures import LATE, WRITES
from testbed.kubernetes_api.nodes import NodeApi
from testbed.nodehub import NODES, XID, NodeHub, node_hub

ADA = Requester(trigger="page", name="ada", role="act")
TAINT = "nodevitals.io/out-of-service"
UNKNOWN = "20200101-000000-zzzzzz"


@pytest.fixture
def api(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[NodeApi]:
    with NodeApi(tmp_path, NODES) as found:
        monkeypatch.setenv("KUBECONFIG", str(found.kubeconfig))
        yield found


def run(steps: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(steps, 60))


async def withheld(hub: NodeHub) -> None:
    """The cordon of gpu-1 is sent, not answered, and the API server is still at it."""
    hub.api.fail(LATE, *WRITES, times=1)
    while not hub.api.late:
        await hub.rounds(15, XID)
    assert hub.api.cordoned() == []


async def by_a_person(hub: NodeHub) -> None:
    book = hub.found.isolations.book
    await book.give_back((await hub.newest()).id, ADA)
    await hub.rounds(15, XID)


async def by_its_fault(hub: NodeHub) -> None:
    await hub.rounds(30)


async def by_the_breaker(hub: NodeHub) -> None:
    hub.found.prometheus.incident = True
    await hub.rounds(15, XID)


@pytest.mark.parametrize(
    ("end", "state"),
    [(by_a_person, "canceled"), (by_its_fault, "ended"), (by_the_breaker, "refused")],
)
def test_a_cordon_that_comes_after_the_end_is_removed_once(
    tmp_path: Path, api: NodeApi, end: Any, state: str
) -> None:
    async def steps() -> None:
        async with node_hub(tmp_path, api) as hub:
            await withheld(hub)
            await end(hub)
            assert await hub.state() == state
            faults = (XID,) if state != "ended" else ()
            assert api.deliver() == [200]
            assert api.cordoned() == ["gpu-1"]
            await hub.rounds(315, *faults)
            assert api.cordoned() == []
            assert MARK not in api.annotations("gpu-1")
            assert api.taints("gpu-1") == ["site/own"]
            one = await hub.newest()
            assert (one.state, one.late_return is not None) == (state, True)
            assert "after its end" in one.steps[-1].text
            writes = api.writes()
            await hub.rounds(900, *faults)
            assert api.writes() == writes

    run(steps())


def test_a_late_cordon_is_found_at_the_start_of_the_hub(tmp_path: Path, api: NodeApi) -> None:
    async def first() -> None:
        async with node_hub(tmp_path, api) as hub:
            await withheld(hub)
            await hub.rounds(30)
            assert await hub.state() == "ended"

    async def second() -> None:
        api.deliver()
        async with node_hub(tmp_path, api) as hub:
            await hub.rounds(15)
            assert api.cordoned() == []

    run(first())
    run(second())


def test_a_mark_that_somebody_puts_back_is_not_removed_again(tmp_path: Path, api: NodeApi) -> None:
    """Only one late write is possible: the second one is a decision of somebody."""

    async def steps() -> None:
        async with node_hub(tmp_path, api) as hub:
            await withheld(hub)
            await hub.rounds(30)
            api.deliver()
            await hub.rounds(315)
            one = await hub.newest()
            api.mark("gpu-1", one.id)
            await hub.rounds(900)
            assert api.cordoned() == ["gpu-1"]

    run(steps())


def test_the_mark_of_another_hub_is_reported_and_left(
    tmp_path: Path, api: NodeApi, caplog: pytest.LogCaptureFixture
) -> None:
    """Or that of a database that is lost."""
    api.mark("gpu-3", UNKNOWN)

    async def steps() -> None:
        async with node_hub(tmp_path, api) as hub:
            await hub.rounds(900, ("gpu-3", "nvidia_xid"))
            assert api.cordoned() == ["gpu-3"]
            assert api.annotations("gpu-3")[MARK] == UNKNOWN
            assert hub.found.isolations.foreign == {"gpu-3": UNKNOWN}

    run(steps())
    assert sum(UNKNOWN in line and "gpu-3" in line for line in caplog.messages) <= 3


def test_a_mark_on_another_node_than_its_own_is_left(tmp_path: Path, api: NodeApi) -> None:
    async def steps() -> None:
        async with node_hub(tmp_path, api) as hub:
            await withheld(hub)
            await hub.rounds(30)
            one = await hub.newest()
            api.mark("gpu-2", one.id)
            await hub.rounds(315)
            assert api.cordoned() == ["gpu-2"]
            assert hub.found.isolations.foreign == {"gpu-2": one.id}

    run(steps())


def test_a_node_that_a_person_has_taken_meanwhile_is_not_returned(
    tmp_path: Path, api: NodeApi
) -> None:
    async def steps() -> None:
        async with node_hub(tmp_path, api) as hub:
            await hub.rounds(90, XID)
            one = await hub.newest()
            api.unmark("gpu-1")
            await hub.rounds(15, XID)
            assert await hub.state() == "canceled"
            api.mark("gpu-1", one.id)
            await hub.rounds(900, XID)
            assert api.cordoned() == ["gpu-1"]

    run(steps())


def test_a_new_fault_on_a_node_with_a_late_cordon_is_acted_on(tmp_path: Path, api: NodeApi) -> None:
    """The late mark is our own: it is no person's act that would end the new isolation."""

    async def steps() -> None:
        async with node_hub(tmp_path, api) as hub:
            await hub.rounds(240)
            await withheld(hub)
            await hub.rounds(30)
            assert await hub.state() == "ended"
            old = await hub.newest()
            api.deliver()
            await hub.rounds(120, XID)
            one = await hub.newest()
            assert one.id != old.id
            assert one.state == "isolated"
            assert api.annotations("gpu-1")[MARK] == one.id

    run(steps())


def test_a_dry_run_looks_for_no_marks(tmp_path: Path, api: NodeApi) -> None:
    """It has no right to list nodes, and would change nothing."""
    api.mark("gpu-3", UNKNOWN)
    api.role = {("get", "nodes")}

    async def steps() -> None:
        async with node_hub(tmp_path, api, dry_run=True) as hub:
            await hub.rounds(600, XID)
            assert api.denied == []

    run(steps())


def test_without_the_right_to_list_nodes_the_rest_goes_on(tmp_path: Path, api: NodeApi) -> None:
    api.role -= {("list", "nodes")}

    async def steps() -> None:
        async with node_hub(tmp_path, api) as hub:
            await hub.rounds(90, XID)
            assert api.cordoned() == ["gpu-1"]
            assert "list nodes" in hub.found.isolations.problem
            await hub.rounds(900, XID)
            assert api.requests["list", "nodes"] <= 6

    run(steps())
