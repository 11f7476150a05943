"""A hub that is killed before or after each of its writes; another one on its folder goes on.

Once it is killed, nothing more comes to its database, and its request to the API server is executed
or not.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterator
from pathlib import Path
from typing import Any

import pytest

from nodevitals.checks.model import Requester
from nodevitals_hub.isolation.schedulers.kubernetes_objects import CONDITION, MARK, REASON
from testbed.kubernetes_api.api import Call
from testbed.kubernetes_api.failures import AFTER_HANG, HANG
from testbed.kubernetes_api.nodes import NodeApi
from testbed.longforms import long_forms
from testbed.nodehub import NODES, XID, NodeHub, node_hub

ADA = Requester(trigger="page", name="ada", role="act")
SECOND = ("gpu-1", "ecc")
WRITES = 9
MOST_ROUNDS = 12


@pytest.fixture
def api(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[NodeApi]:
    with NodeApi(tmp_path, NODES) as found:
        monkeypatch.setenv("KUBECONFIG", str(found.kubeconfig))
        yield found


async def until(hub: NodeHub, faults: tuple[tuple[str, str], ...], what: Any) -> None:
    """Rounds until something holds."""
    for _ in range(MOST_ROUNDS):
        if await what():
            return
        await hub.rounds(15, *faults)
    raise AssertionError(f"{what.__name__}: not within {MOST_ROUNDS} rounds")


async def work(hub: NodeHub) -> None:
    """Out of service, a second fault, a drain, and back; what is done already is left out."""
    api = hub.api

    async def is_over() -> bool:
        return await hub.state() == "canceled"

    async def is_out() -> bool:
        if not hub.found.isolations.book.open or await is_over():
            return await is_over()
        one = await hub.newest()
        return one.acted is not None and api.condition("gpu-1", CONDITION) == "True"

    async def is_extended() -> bool:
        done = "ecc" in api.annotations("gpu-1").get(REASON, "") and not api.pods
        return await is_over() or done

    async def is_asked() -> bool:
        return await is_over() or bool((await hub.newest()).restoring)

    await hub.rounds(15, XID, *([SECOND] if not api.pods else []))
    if not await is_over() and not api.annotations("gpu-1").get(REASON, "").count("ecc"):
        await until(hub, (XID,), is_out)
    await until(hub, (XID, SECOND), is_extended)
    if not await is_asked():
        await hub.found.isolations.book.give_back((await hub.newest()).id, ADA)
    await until(hub, (XID, SECOND), is_over)


async def killed(hub: NodeHub, number: int, how: str) -> None:
    """Work until a write of this number."""
    loop, end = asyncio.get_running_loop(), asyncio.Event()
    count = 0

    def trouble(call: Call) -> str:
        nonlocal count
        count += call.verb in ("patch", "create")
        return how if count == number and call.verb in ("patch", "create") else ""

    hub.api.trouble = trouble
    hub.api.hanging = lambda: loop.call_soon_threadsafe(end.set)
    working = asyncio.ensure_future(work(hub))
    ended = asyncio.ensure_future(end.wait())
    await asyncio.wait({working, ended}, return_when=asyncio.FIRST_COMPLETED)
    assert end.is_set(), "fewer writes than that"
    await hub.found.hub.database.close()
    working.cancel()
    await asyncio.gather(working, return_exceptions=True)
    hub.api.heal()


def run(steps: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(steps, 60))


def check(api: NodeApi) -> None:
    """All is done, once."""
    assert api.cordons == [("gpu-1", True), ("gpu-1", False)]
    assert MARK not in api.annotations("gpu-1")
    assert api.taints("gpu-1") == ["site/own"]
    assert api.condition("gpu-1", CONDITION) == "False"
    assert api.pods == []


def test_without_a_kill_there_are_so_many_writes(tmp_path: Path, api: NodeApi) -> None:
    api.pod("worker-0", "gpu-1")

    async def steps() -> None:
        async with node_hub(tmp_path, api, drain=True) as hub:
            await work(hub)

    run(steps())
    check(api)
    assert api.writes() == WRITES


@pytest.mark.parametrize("how", [HANG, AFTER_HANG])
@pytest.mark.parametrize("number", long_forms("kills", range(1, WRITES + 1), {1, 5}))
def test_a_hub_that_is_killed_at_a_write(
    tmp_path: Path, api: NodeApi, number: int, how: str
) -> None:
    api.pod("worker-0", "gpu-1")

    async def first() -> None:
        async with node_hub(tmp_path, api, drain=True) as hub:
            await killed(hub, number, how)

    async def second() -> None:
        async with node_hub(tmp_path, api, drain=True) as hub:
            await work(hub)
            opened, ended = await hub.found.isolations.book.listed(10)
            assert len([*opened, *ended]) == 1

    run(first())
    run(second())
    check(api)
