"""Collective checks of the hub: the search for the bad node, and a run that a killed hub left."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import pytest
from msgspec.structs import replace

from nodevitals.checks.launchers.launcher import Launched, Progress, ignore, launched, refused
from nodevitals.checks.model import (
    BusExpectation,
    Check,
    CheckDetail,
    CheckRequest,
    Cost,
    Requester,
    RunResult,
    TestRequest,
)
from nodevitals.checks.requests.collective import Collective
from nodevitals.probes.fabric.settings import StaticSource
from nodevitals.probes.fabric.tools.report import Report, ResultRow
from nodevitals_hub.checks.check_procedure import RESUME_SECONDS, left_of
from nodevitals_hub.checks.check_requests import RefusedError
from nodevitals_hub.checks.coordinator import Coordinator
from nodevitals_hub.checks.members import Members
from nodevitals_hub.launch.collectives import CollectiveRunner
from nodevitals_hub.launch.node_watch import NodeWatch
from nodevitals_hub.settings.hub import HubSettings, NodesSettings
from nodevitals_hub.store.check_store import Issued, Store, Unfinished

NODES = tuple(f"gpu-{number}" for number in range(8))
ASKER = Requester(trigger="rest")
REQUEST = CheckRequest(kind="collective", nodes=NODES, expected_bytes_per_second=100e9)


class SimulatedLauncher:
    """A cluster: collectives with a bad node fail, the others have 100 GB/s."""

    def __init__(self, bad: str = "") -> None:
        self.bad = bad
        self.names: list[str] = []
        self.removed: list[str] = []

    async def run(
        self, wanted: Collective, name: str, seconds: float, progress: Progress = ignore
    ) -> Launched:
        self.names.append(name)
        if self.bad in wanted.nodes:
            return refused("corruption", "7 wrong values")
        size = wanted.sizes[-1]
        row = ResultRow(message_bytes=size, bus_bandwidth_bytes_per_second=100e9)
        return launched([Report(outcome="ok", rows=(row,))], versions={"nccl": "2.20"})

    async def remove(self, name: str) -> None:
        self.removed.append(name)


class HungLauncher(SimulatedLauncher):
    """Collectives that do not end."""

    async def run(
        self, wanted: Collective, name: str, seconds: float, progress: Progress = ignore
    ) -> Launched:
        await asyncio.Event().wait()
        raise AssertionError


def hub_of(
    folder: Path, launcher: SimulatedLauncher, runner: type[CollectiveRunner] = CollectiveRunner
) -> tuple[Store, Coordinator]:
    nodes = NodesSettings(static=(StaticSource(targets=NODES),))
    settings = HubSettings(state_directory=str(folder), nodes=nodes)
    members = Members()
    members.read(nodes)
    store = Store(str(folder))
    return store, Coordinator(settings, store, members, runner(launcher, NodeWatch(None, members)))


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


def test_the_first_collective_ever_is_unknown(tmp_path: Path) -> None:
    """And so is the second, which is as fast: until a rate is expected once."""

    async def main() -> list[CheckDetail]:
        store, coordinator = hub_of(tmp_path, SimulatedLauncher())
        without = replace(REQUEST, expected_bytes_per_second=None)
        requests = (without, without, REQUEST, without)
        found = [await ended(coordinator, one) for one in requests]
        await coordinator.stop()
        await store.close()
        return found

    verdicts = [one.check.verdict for one in asyncio.run(main())]
    assert [one and (one.outcome, one.reason) for one in verdicts] == [
        ("unknown", "threshold"),
        ("unknown", "threshold"),
        ("ok", None),
        ("ok", None),
    ]
    assert verdicts[0] is not None
    assert verdicts[0].message.startswith(
        "the collective reached 100 GB/s on its bus; no reference"
    )


def test_sizes_that_are_measured_are_shown_while_the_collective_runs(tmp_path: Path) -> None:
    class Telling(SimulatedLauncher):
        """Has measured two of three sizes, and waits before the last."""

        async def run(
            self, wanted: Collective, name: str, seconds: float, progress: Progress = ignore
        ) -> Launched:
            reports = [
                Report(
                    outcome="ok",
                    rows=(ResultRow(message_bytes=size, bus_bandwidth_bytes_per_second=100e9),),
                )
                for size in wanted.sizes
            ]
            progress(reports[:2])
            told.set()
            await go_on.wait()
            return launched(reports, "$ mpirun -n 8 all_reduce_perf\nrows\n")

    async def main() -> tuple[CheckDetail, CheckDetail]:
        store, coordinator = hub_of(tmp_path, Telling())
        test = TestRequest(sizes="1MiB..4MiB x2")
        check = await coordinator.submit(replace(REQUEST, test=test, isolate=False), ASKER)
        await told.wait()
        running = await coordinator.get(check.id)
        changes = coordinator.changes()
        go_on.set()
        async for change in changes:
            if change.id == check.id and change.ended is not None:
                break
        done = await coordinator.get(check.id)
        assert coordinator.partial(check.id) == ()
        await coordinator.stop()
        await store.close()
        return running, done

    told, go_on = asyncio.Event(), asyncio.Event()
    running, done = asyncio.run(main())
    assert running.check.phase == "running"
    assert [len(result.reports) for result in running.results] == [2]
    assert [len(result.reports) for result in done.results] == [3]
    assert done.results[0].commands == ("mpirun -n 8 all_reduce_perf",)


@pytest.mark.parametrize(
    ("gigabytes", "outcome", "named"),
    [(120.0, "ok", []), (150.0, "unknown", []), (360.0, "bad", ["all devices"])],
)
def test_first_collective_is_held_against_the_hardware(
    tmp_path: Path, gigabytes: float, outcome: str, named: list[str]
) -> None:
    """It has 100 GB/s: all groups as well, so the search for a node names none."""

    class Knowing(CollectiveRunner):
        async def bus(self, check: Check) -> BusExpectation:
            return BusExpectation(bytes_per_second=gigabytes * 1e9, basis="8 ports of 400 Gb/s")

    async def main() -> CheckDetail:
        store, coordinator = hub_of(tmp_path, SimulatedLauncher(), Knowing)
        test = TestRequest(sizes="4GiB")
        request = replace(REQUEST, expected_bytes_per_second=None, test=test)
        found = await ended(coordinator, request)
        await coordinator.stop()
        await store.close()
        return found

    check = asyncio.run(main()).check
    assert check.verdict is not None
    assert check.verdict.outcome == outcome, check.verdict
    assert [found.subject for found in check.verdict.findings] == named
    assert check.bus is not None


@pytest.mark.parametrize(
    ("figures", "outcome", "text"),
    [
        ([30e9, 30e9], "bad", "gpu-0: 30 % of the expected rate, also when it was repeated"),
        ([30e9, 95e9], "ok", "no fault found"),  # a loaded machine
        ([95e9], "ok", "no fault found"),
    ],
)
def test_slow_single_machine_is_tested_again(
    tmp_path: Path, figures: list[float], outcome: str, text: str
) -> None:
    class Changing(SimulatedLauncher):
        async def run(
            self, wanted: Collective, name: str, seconds: float, progress: Progress = ignore
        ) -> Launched:
            size, figure = wanted.sizes[-1], left.pop(0)
            row = ResultRow(message_bytes=size, bus_bandwidth_bytes_per_second=figure)
            return launched([Report(outcome="ok", rows=(row,))])

    async def main() -> CheckDetail:
        store, coordinator = hub_of(tmp_path, Changing())
        found = await ended(coordinator, replace(REQUEST, nodes=NODES[:1]))
        await coordinator.stop()
        await store.close()
        return found

    left = list(figures)
    detail = asyncio.run(main())
    assert left == []
    assert detail.check.verdict is not None
    assert (detail.check.verdict.outcome, detail.check.verdict.message) == (outcome, text)
    assert detail.check.figure == max(figures)


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


def test_the_time_limit_counts_from_the_stored_start(tmp_path: Path) -> None:
    """A hub that starts hours later has a moment to take results, and no new limit."""
    launcher = HungLauncher()
    hour = replace(REQUEST, limit_seconds=3600.0)

    async def main() -> CheckDetail:
        store, coordinator = hub_of(tmp_path, launcher)
        long_ago = time.time() - 7200
        check = await coordinator.estimate(hour, ASKER)
        await store.add(replace(check, phase="running", started=long_ago), "")
        changes = coordinator.changes()
        await coordinator.start()
        async for change in changes:
            if change.ended is not None:
                break
        found = await coordinator.get(check.id)
        await store.close()
        return found

    detail = asyncio.run(main())
    verdict = detail.check.verdict
    assert verdict is not None
    assert (verdict.outcome, verdict.reason) == ("unknown", "harness")
    assert verdict.message.startswith("not done within its time limit of 3600 s")


@pytest.mark.parametrize(
    ("now", "issued", "result", "left"),
    [
        (1000.0, [], [], 600.0),
        (1200.0, [], [], 400.0),
        (9000.0, [], [], RESUME_SECONDS),
        (500.0, [], [], 600.0),  # the clock went back
        (500.0, [1100.0], [], 500.0),
        (500.0, [1100.0], [1200.0, 1150.0], 300.0),
        (1500.0, [1100.0], [1200.0], 100.0),
    ],
)
def test_what_is_left_of_the_time_limit(
    now: float, issued: list[float], result: list[float], left: float
) -> None:
    check = Check(
        id="20260101-000000-abcdef",
        request=replace(REQUEST, limit_seconds=600.0),
        requester=ASKER,
        cost=Cost(nodes=8, runs=1, node_seconds=1.0, seconds=1.0, bytes=0.0),
        created=900.0,
        started=1000.0,
    )
    results = tuple(RunResult(number=0, nodes=NODES, started=at, seconds=100.0) for at in result)
    unfinished = Unfinished(check, results, tuple(Issued(0, "nv-0", at) for at in issued))
    assert left_of(unfinished, now) == left
    short = replace(check, request=replace(REQUEST, limit_seconds=1.0))
    assert left_of(Unfinished(short), 9000.0) == 1.0


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
