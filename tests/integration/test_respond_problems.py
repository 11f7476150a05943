"""What /metrics shows while the scheduler does not do what the hub asks."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterator
from pathlib import Path
from typing import Any

import pytest

from nodevitals.checks.model import Requester
from testbed.kubernetes_api.nodes import NodeApi
from testbed.nodehub import NODES, XID, NodeHub, node_hub

ADA = Requester(trigger="page", name="ada", role="act")


@pytest.fixture
def api(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[NodeApi]:
    with NodeApi(tmp_path, NODES) as found:
        monkeypatch.setenv("KUBECONFIG", str(found.kubeconfig))
        yield found


def run(steps: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(steps, 60))


def problems(hub: NodeHub) -> dict[str, float]:
    """The reasons that are not 0."""
    shown = hub.samples("isolation_problems")
    assert len(shown) == 4
    return {reason: value for (reason,), value in shown.items() if value}


def test_each_reason_is_counted_while_it_lasts(tmp_path: Path, api: NodeApi) -> None:
    both = (XID, ("gpu-2", "nvidia_xid"))

    async def steps() -> None:
        async with node_hub(tmp_path, api) as hub:
            await hub.rounds(30, *both)
            assert problems(hub) == {}
            api.role -= {("patch", "nodes")}
            await hub.rounds(120, *both)
            assert problems(hub) == {"refused": 2}
            api.fail(503)
            await hub.rounds(15, *both)
            assert problems(hub) == {"unreachable": 2}
            api.heal()
            api.conflicts = 2
            api.role |= {("patch", "nodes")}
            await hub.rounds(15, *both)
            assert problems(hub) == {"conflict": 2}
            await hub.rounds(15, *both)
            assert problems(hub) == {}
            assert api.cordoned() == ["gpu-1", "gpu-2"]
            api.role -= {("patch", "nodes")}
            await hub.found.isolations.book.give_back((await hub.newest()).id, ADA)
            await hub.rounds(15, *both)
            assert problems(hub) == {"refused": 1}
            api.role |= {("patch", "nodes")}
            await hub.rounds(15, *both)
            assert problems(hub) == {}

    run(steps())


def test_rights_that_lack_show_before_there_is_a_fault(tmp_path: Path, api: NodeApi) -> None:
    """The search for marks is the first that asks."""
    api.role = set()

    async def steps() -> None:
        async with node_hub(tmp_path, api) as hub:
            await hub.rounds(15)
            assert problems(hub) == {"refused": 1}

    run(steps())


def test_a_dry_run_shows_that_it_could_not_act(tmp_path: Path, api: NodeApi) -> None:
    api.role = set()

    async def steps() -> None:
        async with node_hub(tmp_path, api, dry_run=True) as hub:
            await hub.rounds(120, XID)
            assert problems(hub) == {"refused": 1}

    run(steps())


def test_marks_that_are_left_are_counted(tmp_path: Path, api: NodeApi) -> None:
    for node in ("gpu-3", "gpu-4"):
        api.mark(node, "20200101-000000-zzzzzz")

    async def steps() -> None:
        async with node_hub(tmp_path, api) as hub:
            await hub.rounds(15)
            assert problems(hub) == {"foreign_mark": 2}

    run(steps())


def test_a_scheduler_that_cannot_be_made_is_counted(
    tmp_path: Path, api: NodeApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def steps() -> None:
        async with node_hub(tmp_path, api) as hub:
            monkeypatch.setenv("KUBECONFIG", str(tmp_path / "missing"))
            await hub.rounds(15)
            assert problems(hub) == {"unreachable": 1}

    run(steps())


@pytest.mark.parametrize("dry_run", [False, True])
def test_the_breaker_shows_whether_it_is_that_of_a_dry_run(
    tmp_path: Path, api: NodeApi, dry_run: bool
) -> None:
    async def steps() -> None:
        async with node_hub(tmp_path, api, dry_run=dry_run) as hub:
            hub.found.prometheus.incident = True
            await hub.rounds(45)
            found = hub.samples("isolation_breaker_open")
            assert found == {("false",): float(not dry_run), ("true",): float(dry_run)}

    run(steps())
