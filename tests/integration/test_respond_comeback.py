"""A node is tested before it returns to service, by ordinary checks of the hub."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from nodevitals.checks.model import Check, CheckRequest, Cost, NodeVerdict
from nodevitals.checks.model import Verdict as CheckVerdict
from nodevitals.linux.host import Clock
from nodevitals_hub.alerting.servers import Servers
from nodevitals_hub.checks.coordinator import Coordinator
from nodevitals_hub.checks.members import Members
from nodevitals_hub.context import Hub
from nodevitals_hub.isolation import return_checks
from nodevitals_hub.isolation.isolation_book import Book
from nodevitals_hub.isolation.recovery import Verdict
from nodevitals_hub.isolation.return_checks import ReturnChecks
from nodevitals_hub.records import Fault, Isolation
from nodevitals_hub.settings.hub import HubSettings
from nodevitals_hub.store.check_store import Store
from testbed.hub import SimulatedRunner

NODE = "gpu-1"
POOLS = [
    {"targets": [f"gpu-{number}" for number in range(1, 7)], "labels": {"pool": "train"}},
    {"targets": ["other-1", "other-2", "other-3", "other-4"], "labels": {"pool": "other"}},
]
ISOLATION = Isolation(
    id="20261123-030000-abcdef",
    node=NODE,
    pool="train",
    dry_run=False,
    state="testing",
    faults=(Fault(node=NODE, fault="nvidia_xid", service="drain_now"),),
    created=1.0,
)


def play(
    folder: Path,
    act: Callable[[Hub], Awaitable[Any]],
    runner: SimulatedRunner | None = None,
    **back: Any,
) -> Any:
    """What an act on a hub with simulated runs returns."""

    async def whole() -> Any:
        settings = msgspec.convert(
            {
                "state_directory": str(folder),
                "nodes": {"static": POOLS},
                "presets": {"links": {"kind": "matrix", "test": {"device": "mlx5_0"}}},
                "out_of_service": {"scheduler": "slurm", "back": back},
            },
            HubSettings,
        )
        store, members = Store(settings.state_directory), Members()
        members.read(settings.nodes)
        own = runner or SimulatedRunner(0.01, frozenset())
        coordinator = Coordinator(settings, store, members, own)
        await coordinator.start()
        running = asyncio.ensure_future(coordinator.run())
        try:
            hub = Hub(settings, store, members, coordinator)
            return await act(hub)
        finally:
            running.cancel()
            await coordinator.stop()
            await store.close()

    return asyncio.run(whole())


def verdict(hub: Hub) -> Awaitable[Verdict]:
    return ReturnChecks(hub, Servers(hub), Book(hub, Clock())).test(ISOLATION)


async def checked(hub: Hub) -> tuple[Verdict, list[Check]]:
    return await verdict(hub), list(await hub.checks.list())


def test_the_nodes_own_check_decides(tmp_path: Path) -> None:
    found, [check] = play(tmp_path, checked)
    assert (found.ok, found.check_id) == (True, check.id)
    assert (check.request.kind, check.request.nodes) == ("node", (NODE,))
    assert ISOLATION.id in check.request.note


def test_the_same_try_is_the_same_check_after_a_restart(tmp_path: Path) -> None:
    first = play(tmp_path, verdict)
    second, checks = play(tmp_path, checked)
    assert second.check_id == first.check_id
    assert len(checks) == 1


def test_partners_are_of_its_pool(tmp_path: Path) -> None:
    found, checks = play(tmp_path, checked, pair_preset="links", partners=3)
    assert found.ok is True
    [pairs] = [one for one in checks if one.request.kind == "matrix"]
    assert found.check_id == pairs.id
    assert NODE in pairs.request.nodes
    assert len(pairs.request.nodes) == 4
    assert all(name.startswith("gpu-") for name in pairs.request.nodes)


@pytest.mark.parametrize("partners", [2, 3])
def test_a_node_that_is_slow_with_its_partners_stays_out(tmp_path: Path, partners: int) -> None:
    runner = SimulatedRunner(0.01, frozenset({NODE}))
    found = play(tmp_path, verdict, runner, pair_preset="links", partners=partners)
    assert found.ok is False
    assert NODE in found.text


def test_two_partners_are_enough_for_a_good_node(tmp_path: Path) -> None:
    assert play(tmp_path, verdict, pair_preset="links", partners=2).ok is True


def test_without_partners_nothing_can_be_told(tmp_path: Path) -> None:
    found = play(tmp_path, verdict, pair_preset="links", partners=8)
    assert found.ok is None
    assert "partners" in found.text
    assert play(tmp_path, verdict, pair_preset="nothing").ok is None


def test_a_test_that_nothing_waits_for_ends_its_check(tmp_path: Path) -> None:
    async def act(hub: Hub) -> str:
        task = asyncio.ensure_future(verdict(hub))
        while not await hub.checks.list():
            await asyncio.sleep(0.01)
        task.cancel()
        await asyncio.wait([task])
        [check] = await hub.checks.list()
        while check.ended is None:
            [check] = await hub.checks.list()
            await asyncio.sleep(0.01)
        return check.phase

    held = SimulatedRunner(0.01, frozenset(), frozenset({NODE}))
    assert play(tmp_path, act, held) == "canceled"


@pytest.mark.parametrize(
    ("outcome", "subject", "ok"),
    [
        ("ok", "", True),
        ("bad", NODE, False),
        ("bad", f"gpu-2 - {NODE}", False),
        ("bad", "gpu-2", None),
        ("bad", f"{NODE}0", None),
        ("unknown", "", None),
    ],
)
def test_a_finding_on_a_partner_says_nothing_of_the_node(
    outcome: Any, subject: str, ok: bool | None
) -> None:
    finding = NodeVerdict(subject=subject, scope="node", reason="threshold", message="slow")
    check = Check(
        id="20261123-030000-bcdefg",
        request=CheckRequest(kind="matrix", nodes=(NODE, "gpu-2")),
        requester=return_checks.REQUESTER,
        phase="done",
        created=1.0,
        cost=Cost(nodes=2, runs=1, node_seconds=1, seconds=1, bytes=1),
        verdict=CheckVerdict(outcome=outcome, findings=(finding,) if subject else ()),
    )
    assert return_checks.verdict_of(check, NODE).ok is ok
