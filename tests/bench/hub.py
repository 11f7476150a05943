"""The hub: the plan for 10,000 nodes and their check, and 200 kills at random moments.

The long form of `tests/integration/test_hub_kills.py`.
"""

from __future__ import annotations

import asyncio
import resource
import time
from pathlib import Path

import msgspec

from bench.measure import table
from nodevitals.checks.model import CheckRequest, Requester, RunResult
from nodevitals_hub.checks import planning
from nodevitals_hub.checks.check_requests import Member
from nodevitals_hub.checks.coordinator import Coordinator
from nodevitals_hub.checks.members import Members
from nodevitals_hub.settings.hub import HubSettings, LimitsSettings
from nodevitals_hub.store.check_store import Store
from testbed.hub import SimulatedRunner
from testbed.hubkills import kill_at_random_moments

KILLS = 200
NODES = 10_000
NAMES = [f"gpu-{number:05}" for number in range(NODES)]
LABELS = {"pool": "train"}
TEST = {"tool": "iperf3", "device": "fab0", "iterations": 5}


def main(folder: Path) -> None:
    """Print the tables; a check that is lost or run twice ends it with AssertionError."""
    _plan()
    _kills(folder)
    print()
    table(["10,000 nodes", "measured"], asyncio.run(_large(folder / "large")))


def _plan() -> None:
    """Print how long it takes until a check of all nodes may start."""
    members = {name: Member(name=name, host=name, port=9856, labels=LABELS) for name in NAMES}
    settings = HubSettings(limits=LimitsSettings(node_hours=1e9))
    rows = []
    for rounds in (4, 64):
        fields = {"kind": "matrix", "where": LABELS, "rounds": rounds, "test": TEST}
        began = time.perf_counter()
        request = planning.resolve(msgspec.convert(fields, CheckRequest), members, settings)
        cost = planning.cost(request, settings)
        estimated = time.perf_counter()
        runs = planning.plan(request)
        planned = time.perf_counter()
        assert len(runs) == cost.runs
        times = (estimated - began, planned - estimated)
        rows.append([str(rounds), f"{cost.runs:,}", *(f"{seconds:.2f} s" for seconds in times)])
    table([f"{NODES:,} nodes: rounds", "runs", "request and cost", "all runs"], rows)


def _kills(folder: Path) -> None:
    outcome = kill_at_random_moments(folder, KILLS, seed=200)
    assert outcome.problems == [], outcome.problems
    rows = [
        ["checks submitted", str(outcome.submitted)],
        ["ended with one verdict", str(outcome.ended)],
        ["orders executed, each once", str(outcome.executed)],
        ["runs skipped (lease or lost)", str(outcome.lost)],
    ]
    table([f"{KILLS} times kill -9", "number"], rows)


async def _large(folder: Path) -> list[list[str]]:
    source = {"targets": NAMES, "labels": LABELS}
    settings = msgspec.convert(
        {
            "state_directory": str(folder),
            "nodes": {"static": [source]},
            "limits": {"pairs": 5000, "node_hours": 1e6},
        },
        HubSettings,
    )
    members = Members()
    members.read(settings.nodes)
    store = Store(str(folder))
    coordinator = Coordinator(settings, store, members, SimulatedRunner(0.0, frozenset()))
    await coordinator.start()
    before = _resident()
    fields = {"kind": "matrix", "where": LABELS, "rounds": 4, "test": TEST}
    request = msgspec.convert(fields, CheckRequest)
    asker = Requester(trigger="rest")
    began = time.monotonic()
    check = await coordinator.submit(request, asker)
    submitted = time.monotonic()
    slowest = 0.0
    while (await coordinator.list(limit=1))[0].ended is None:
        tick = time.monotonic()
        await asyncio.sleep(0.01)
        slowest = max(slowest, time.monotonic() - tick - 0.01)
    done = time.monotonic()
    detail = await coordinator.get(check.id)
    got = time.monotonic()
    await coordinator.list()
    listed = time.monotonic()
    assert all(isinstance(one, RunResult) and one.reports for one in detail.results)
    await coordinator.stop()
    await store.close()
    size = sum(file.stat().st_size for file in folder.iterdir())
    return [
        ["submit a tournament of 4 rounds", f"{submitted - began:.2f} s"],
        [f"execute and store {check.cost.runs} runs (simulated)", f"{done - submitted:.1f} s"],
        ["longest time in which the loop did nothing else", f"{slowest:.2f} s"],
        ["get with all results", f"{got - done:.2f} s"],
        ["list", f"{(listed - got) * 1000:.0f} ms"],
        ["size of the store", f"{size / 2**20:.1f} MiB"],
        ["memory above an idle hub", f"{(_resident() - before) / 2**20:.0f} MiB"],
    ]


def _resident() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
