"""Leases of the hub: who may have one, how many, how long, and what agents are asked."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest

from nodevitals.checks.model import Requester
from nodevitals.wire import MAX_LEASE_SECONDS, LeaseState
from nodevitals_hub.checks.check_requests import Member, RefusedError
from nodevitals_hub.leases.lease_book import MAX_LEASES, AgentError, LeaseWanted
from nodevitals_hub.leases.leases import FILE_NAME, Leases
from nodevitals_hub.settings.hub import LeasesSettings
from testbed.clock import ManualClock

MEMBERS = [
    Member(name=f"gpu-{number}", host=f"10.0.0.{number}", port=9856, labels={"pool": "train"})
    for number in range(1, 6)
]
PERSON = Requester(trigger="page", name="li", role="run")


class Agents:
    """Agents below the client: what each was asked for last, and which do not reply."""

    def __init__(self) -> None:
        self.asked: dict[str, tuple[tuple[str, ...], float]] = {}
        self.silent: set[str] = set()
        self.states: dict[str, LeaseState] = {}

    async def send(
        self, member: Member, probes: tuple[str, ...], seconds: float
    ) -> dict[str, LeaseState]:
        """Reply as an agent does."""
        if member.name in self.silent:
            raise AgentError(f"{member.host}: connection refused")
        self.asked[member.name] = probes, seconds
        return {probe: self.states.get(probe, "active") for probe in probes}

    def probes(self, name: str) -> tuple[str, ...]:
        """What a node was asked for last."""
        return self.asked.get(name, ((), 0.0))[0]


Scene = Callable[[Leases, Agents, ManualClock], Coroutine[Any, Any, None]]


def play(
    folder: Path,
    scene: Scene,
    members: Sequence[Member] = MEMBERS,
    clock: ManualClock | None = None,
    **settings: Any,
) -> None:
    """Run a scene with the leases of a hub that runs."""

    async def main() -> None:
        agents, time = Agents(), clock or ManualClock()
        made = LeasesSettings(**settings)
        leases = Leases(lambda: made, str(folder), lambda: members, agents.send, time)
        running = asyncio.ensure_future(leases.run())
        await asyncio.sleep(0)
        try:
            await asyncio.wait_for(scene(leases, agents, time), 30)
        finally:
            running.cancel()

    asyncio.run(main())


async def until(condition: Callable[[], bool]) -> None:
    """Wait for a condition; `play` has the time limit."""
    while not condition():
        await asyncio.sleep(0.005)


def wanted(*nodes: str, probes: tuple[str, ...] = ("rdma",), **more: Any) -> LeaseWanted:
    return LeaseWanted(nodes=nodes, probes=probes, **more)


def test_agents_are_asked_for_all_that_is_wanted_of_them(tmp_path: Path) -> None:
    """Two leases of a node are one request; what remains goes on when one ends."""

    async def scene(leases: Leases, agents: Agents, _: ManualClock) -> None:
        first = await leases.ask(wanted("gpu-1", "gpu-2"), PERSON)
        await leases.ask(wanted("gpu-2", probes=("network",)), PERSON)
        await until(lambda: agents.probes("gpu-2") == ("network", "rdma"))
        assert agents.asked["gpu-1"] == (("rdma",), MAX_LEASE_SECONDS)
        await leases.end(first.id, PERSON)
        await until(lambda: agents.probes("gpu-2") == ("network",))
        await until(lambda: agents.probes("gpu-1") == ())
        await until(lambda: [node.name for node in leases.nodes()] == ["gpu-2"])

    play(tmp_path, scene)


def test_lease_ends_though_the_time_of_day_jumps(tmp_path: Path) -> None:
    async def scene(leases: Leases, agents: Agents, clock: ManualClock) -> None:
        await leases.ask(wanted("gpu-1", seconds=100), PERSON)
        for jump in (7200, -14400, 7200):
            clock.jump(jump)
            assert len(leases.all()) == 1
        clock.advance(99)
        assert len(leases.all()) == 1
        clock.jump(-7200)
        clock.advance(1)
        assert leases.all() == ()
        assert leases.nodes() == ()
        assert leases.scrape_targets(9855, "http") == []

    play(tmp_path, scene)


def test_agent_is_never_asked_for_longer_than_is_wanted(tmp_path: Path) -> None:
    async def scene(leases: Leases, agents: Agents, _: ManualClock) -> None:
        await leases.ask(wanted("gpu-1", seconds=30), PERSON)
        await until(lambda: "gpu-1" in agents.asked)
        assert agents.asked["gpu-1"][1] == pytest.approx(30)

    play(tmp_path, scene)


def test_restarted_hub_goes_on_with_leases(tmp_path: Path) -> None:
    clock = ManualClock()

    async def before(leases: Leases, agents: Agents, _: ManualClock) -> None:
        await leases.ask(wanted("gpu-1", seconds=100), PERSON)
        await leases.ask(wanted("gpu-2", seconds=1000, note="slow at night"), PERSON)

    async def after(leases: Leases, agents: Agents, _: ManualClock) -> None:
        await until(lambda: agents.probes("gpu-2") == ("rdma",))
        (left,) = leases.all()
        assert (left.nodes, left.note, left.requester) == (("gpu-2",), "slow at night", PERSON)
        assert "gpu-1" not in agents.asked

    play(tmp_path, before, clock=clock)
    clock.advance(500)
    play(tmp_path, after, clock=clock)


@pytest.mark.parametrize(("jump", "left"), [(-7200, 1000), (500, 500), (7200, 0)])
def test_clock_that_was_set_while_no_hub_ran_makes_no_lease_longer(
    tmp_path: Path, jump: float, left: float
) -> None:
    clock = ManualClock()

    async def before(leases: Leases, agents: Agents, _: ManualClock) -> None:
        await leases.ask(wanted("gpu-1", seconds=1000), PERSON)

    async def after(leases: Leases, agents: Agents, _: ManualClock) -> None:
        if left:
            await until(lambda: "gpu-1" in agents.asked)
            clock.advance(left - 1)
            assert len(leases.all()) == 1
            clock.advance(1)
        assert leases.all() == ()

    play(tmp_path, before, clock=clock)
    clock.jump(jump)
    play(tmp_path, after, clock=clock)


@pytest.mark.parametrize(
    "data", [b"", b"\xff", b"{}", b"[1]", b'[{"id": "a"}]', b'[{"x": ' + b"[" * 100_000]
)
def test_damaged_file_costs_only_the_leases(tmp_path: Path, data: bytes) -> None:
    (tmp_path / FILE_NAME).write_bytes(data)

    async def scene(leases: Leases, agents: Agents, _: ManualClock) -> None:
        assert leases.all() == ()
        await leases.ask(wanted("gpu-1"), PERSON)
        await until(lambda: agents.probes("gpu-1") == ("rdma",))

    play(tmp_path, scene)


def test_lease_works_without_a_place_for_its_file(tmp_path: Path) -> None:
    (tmp_path / "leases.new").mkdir()

    async def scene(leases: Leases, agents: Agents, _: ManualClock) -> None:
        await leases.ask(wanted("gpu-1"), PERSON)
        await until(lambda: agents.probes("gpu-1") == ("rdma",))

    play(tmp_path, scene)


def test_node_that_does_not_reply_does_not_hold_up_the_others(tmp_path: Path) -> None:
    async def scene(leases: Leases, agents: Agents, _: ManualClock) -> None:
        agents.silent.add("gpu-1")
        agents.states["mounts"] = "targets"
        await leases.ask(wanted("gpu-1", "gpu-2", probes=("rdma", "mounts")), PERSON)
        await leases.ask(wanted("gpu-3", probes=("mounts",)), PERSON)
        await until(lambda: "waiting" not in {node.state for node in leases.nodes()})
        states = {node.name: node.state for node in leases.nodes()}
        assert states == {"gpu-1": "unreachable", "gpu-2": "active", "gpu-3": "refused"}
        assert leases.nodes()[0].error == "10.0.0.1: connection refused"
        (target,) = leases.scrape_targets(9855, "https")
        assert target == {
            "targets": ["10.0.0.2:9855"],
            "labels": {
                "__scheme__": "https",
                "__scrape_interval__": "1s",
                "__scrape_timeout__": "1s",
                "__param_collect": "rdma",
                "__meta_nodevitals_node": "gpu-2",
            },
        }

    play(tmp_path, scene)


def test_nodes_are_chosen_by_label_and_addresses_may_be_of_version_6(tmp_path: Path) -> None:
    members = [*MEMBERS, Member(name="other", host="fd00::7", port=9856, labels={"pool": "x"})]

    async def scene(leases: Leases, agents: Agents, _: ManualClock) -> None:
        lease = await leases.ask(LeaseWanted(where={"pool": "x"}, probes=("rdma",)), PERSON)
        assert lease.nodes == ("other",)
        await until(lambda: bool(leases.scrape_targets(9855, "http")))
        assert leases.scrape_targets(9855, "http")[0]["targets"] == ["[fd00::7]:9855"]
        lease = await leases.ask(LeaseWanted(where={"pool": "train"}, probes=("rdma",)), PERSON)
        assert len(lease.nodes) == 5

    play(tmp_path, scene, members)


def test_same_alert_prolongs_its_lease(tmp_path: Path) -> None:
    async def scene(leases: Leases, agents: Agents, clock: ManualClock) -> None:
        assert await leases.ask_for_alert("Unknown", ["gpu-1"]) is None
        first = await leases.ask_for_alert("NodeFabricSlow", ["gpu-1"])
        clock.advance(100)
        second = await leases.ask_for_alert("NodeFabricSlow", ["gpu-1"])
        assert first is not None
        assert second is not None
        assert first.id == second.id
        assert len(leases.all()) == 1
        clock.advance(250)  # beyond the first one's end
        assert leases.all() == (second,)

    alerts = {"NodeFabricSlow": ("rdma", "network")}
    play(tmp_path, scene, alerts=alerts, alert_duration=300.0)


@pytest.mark.parametrize(
    ("request_", "requester", "kind"),
    [
        (wanted("gpu-1"), Requester(trigger="rest", role="read"), "forbidden"),
        (wanted("gpu-9"), PERSON, "invalid"),
        (wanted(), PERSON, "invalid"),
        (LeaseWanted(where={"pool": "none"}, probes=("rdma",)), PERSON, "invalid"),
        (wanted("gpu-1", seconds=7201), PERSON, "invalid"),
        (wanted("gpu-1", "gpu-2", "gpu-3", "gpu-4"), PERSON, "busy"),
        (wanted("gpu-5", probes=("a", "b", "c")), PERSON, "busy"),
    ],
)
def test_what_is_refused(
    tmp_path: Path, request_: LeaseWanted, requester: Requester, kind: str
) -> None:
    async def scene(leases: Leases, agents: Agents, _: ManualClock) -> None:
        six = tuple(f"probe{number}" for number in range(6))
        await leases.ask(wanted("gpu-5", probes=six), PERSON)
        with pytest.raises(RefusedError) as refused:
            await leases.ask(request_, requester)
        assert refused.value.kind == kind
        assert "\n" not in str(refused.value)
        assert len(leases.all()) == 1

    play(tmp_path, scene, max_nodes=4)


def test_number_of_leases_is_bounded(tmp_path: Path) -> None:
    async def scene(leases: Leases, agents: Agents, _: ManualClock) -> None:
        for number in range(MAX_LEASES):
            await leases.ask(wanted("gpu-1"), Requester(trigger="rest", name=str(number)))
        with pytest.raises(RefusedError, match="end one first"):
            await leases.ask(wanted("gpu-1"), PERSON)
        with pytest.raises(RefusedError, match="may have ended"):
            await leases.end("0" * 100, PERSON)

    play(tmp_path, scene)


@pytest.mark.parametrize(
    "body",
    [
        {"probes": []},
        {"probes": ["rdma"] * 9},
        {"probes": ["../x"]},
        {"probes": ["rdma"], "nodes": ["a b"]},
        {"probes": ["rdma"], "seconds": 9},
        {"probes": ["rdma"], "seconds": "1h"},
        {"probes": ["rdma"], "interval": 0.1},
    ],
    ids=str,
)
def test_bodies_that_are_no_request(body: dict[str, Any]) -> None:
    with pytest.raises(msgspec.ValidationError):
        msgspec.convert(body, LeaseWanted)
