"""Collective checks of the hub: the search for the bad node, and a run that a killed hub left."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from msgspec.structs import replace

from nodevitals.checks.collective import Collective
from nodevitals.checks.launchers import Launched, launched, refused
from nodevitals.checks.model import CheckDetail, CheckRequest, Requester
from nodevitals.hub.checks import RefusedError
from nodevitals.hub.collectives import CollectiveRunner
from nodevitals.hub.coordinator import Coordinator
from nodevitals.hub.members import Members
from nodevitals.hub.settings import HubSettings, NodesSettings
from nodevitals.hub.store import Issued, Store
from nodevitals.probes.fabric.report import Report, ResultRow
from nodevitals.probes.fabric.settings import StaticSource

NODES = tuple(f"gpu-{number}" for number in range(8))
ASKER = Requester(trigger="rest")
REQUEST = CheckRequest(kind="collective", nodes=NODES)


class SimulatedLauncher:
    """A cluster: collectives with a bad node fail, the others have 100 GB/s."""

    def __init__(self, bad: str = "") -> None:
        self.bad = bad
        self.names: list[str] = []
        self.removed: list[str] = []

    async def run(self, wanted: Collective, name: str, seconds: float) -> Launched:
        self.names.append(name)
        if self.bad in wanted.nodes:
            return refused("corruption", "7 wrong values")
        size = wanted.sizes[-1]
        row = ResultRow(message_bytes=size, bus_bandwidth_bytes_per_second=100e9)
        return launched([Report(outcome="ok", rows=(row,))], versions={"nccl": "2.20"})

    async def remove(self, name: str) -> None:
        self.removed.append(name)


def hub_of(folder: Path, launcher: SimulatedLauncher) -> tuple[Store, Coordinator]:
    nodes = NodesSettings(static=(StaticSource(targets=NODES),))
    settings = HubSettings(state_directory=str(folder), nodes=nodes)
    members = Members()
    members.read(nodes)
    store = Store(str(folder))
    return store, Coordinator(settings, store, members, CollectiveRunner(launcher))


async def ended(coordinator: Coordinator, request: CheckRequest) -> CheckDetail:
    changes = coordinator.changes()
    check = await coordinator.submit(request, ASKER)
    async for change in changes:
        if change.id == check.id and change.ended is not None:
            break
    return await coordinator.get(check.id)


def test_a_collective_that_fails_is_bisected_until_a_node_is_named(tmp_path: Path) -> None:
    async def main() -> tuple[CheckDetail, CheckDetail]:
        launcher = SimulatedLauncher(bad="gpu-5")
        store, coordinator = hub_of(tmp_path, launcher)
        bad = await ended(coordinator, REQUEST)
        assert len(set(launcher.names)) == len(launcher.names) == len(bad.results) > 1
        launcher.bad = ""
        good = await ended(coordinator, REQUEST)
        await coordinator.stop()
        await store.close()
        return bad, good

    bad, good = asyncio.run(main())
    assert bad.check.verdict is not None
    assert (bad.check.verdict.outcome, bad.check.verdict.reason) == ("bad", "hardware")
    assert [one.subject for one in bad.check.verdict.findings] == ["gpu-5"]
    assert good.check.verdict is not None
    assert (good.check.verdict.outcome, good.check.figure) == ("ok", 100e9)
    assert good.results[0].versions == {"nccl": "2.20"}


def test_a_run_that_a_killed_hub_left_is_ended_and_not_run_again(tmp_path: Path) -> None:
    launcher = SimulatedLauncher()

    async def killed() -> str:
        store, coordinator = hub_of(tmp_path, launcher)
        check = replace(await coordinator.estimate(REQUEST, ASKER), phase="running", started=1.0)
        await store.add(check, "")
        await store.issue(check.id, [Issued(0, f"nv-{check.id}-0", 1.0)])
        await store.close()
        return check.id

    async def next_hub(identity: str) -> CheckDetail:
        store, coordinator = hub_of(tmp_path, launcher)
        changes = coordinator.changes()
        await coordinator.start()
        async for change in changes:
            if change.ended is not None:
                break
        found = await coordinator.get(identity)
        await store.close()
        return found

    identity = asyncio.run(killed())
    detail = asyncio.run(next_hub(identity))
    assert (launcher.names, launcher.removed) == ([], [f"nv-{identity}-0"])
    assert [one.skipped for one in detail.results] == ["lost"]
    assert detail.check.verdict is not None
    assert (detail.check.verdict.outcome, detail.check.verdict.reason) == ("unknown", "harness")


def test_a_full_disk_refuses_checks_and_those_that_run_end_when_there_is_room(
    tmp_path: Path,
) -> None:
    async def main() -> None:
        launcher = SimulatedLauncher()
        store, coordinator = hub_of(tmp_path, launcher)
        first = await ended(coordinator, REQUEST)
        store._connection.execute("PRAGMA max_page_count = 1")
        with pytest.raises(RefusedError, match="full") as refused:
            for _ in range(100):
                await coordinator.submit(replace(REQUEST, note="n" * 500), ASKER)
        assert refused.value.kind == "unavailable"
        assert "\n" not in str(refused.value)
        assert (await coordinator.get(first.check.id)) == first
        store._connection.execute("PRAGMA max_page_count = 100000")
        last = await ended(coordinator, REQUEST)
        assert last.check.verdict is not None
        assert last.check.verdict.outcome == "ok"
        left = [one for one in await coordinator.list() if one.ended is None]
        assert left == []
        await store.close()

    asyncio.run(main())
