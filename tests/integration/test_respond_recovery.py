"""After a fault of logins or connections: other nodes are asked before the node is taken out of
service, and before it returns. tests/e2e/test_recovery.py has the whole story with a real sshd.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Sequence
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

import pytest

from nodevitals_hub.checks.members import Members
from nodevitals_hub.checks.peer_sights import PeerSight, Sights
from nodevitals_hub.checks.runners import Runner
from nodevitals_hub.records import Isolation
from testbed.repairs import Ticket, repairs_of
from testbed.respond import Recorder, Responding, responding

NODES = [f"gpu-{number}" for number in range(1, 9)]
SUSPECT = "gpu-1"
REPORT = (SUSPECT, "peer_unreachable")
FREE = {"nodes": 8, "share": 1.0, "per_hour": 8, "breaker_nodes": 1000, "breaker_share": 1.0}
RECOVERY = {"faults": ["peer_unreachable", "node_reaches_nobody"], "observers": 3}


def run(steps: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(steps, 240))


class Seeing(Runner):
    """Agents whose sights are those of the test."""

    def __init__(self, _: Members) -> None:
        self.failing: dict[str, set[str]] = {}
        """Who does not reach a node."""
        self.silent: set[str] = set()
        self.units: dict[str, bool] = {}
        """Which units run, on each node."""
        self.asked: list[tuple[str, ...]] = []

    async def sights(self, nodes: Sequence[str]) -> Sights:
        """Each node reports about each other one."""
        self.asked.append(tuple(nodes))
        return {
            name: [
                PeerSight("peers", peer, name not in self.failing.get(peer, ()), "banner")
                for peer in NODES
                if peer != name
            ]
            + [PeerSight("units", unit, runs) for unit, runs in self.units.items()]
            for name in nodes
            if name not in self.silent
        }


def hub(
    folder: Path, *repairs: dict[str, Any], **more: Any
) -> AbstractAsyncContextManager[Responding]:
    """A hub that recovers, with simulated agents."""
    settings = {"recovery": RECOVERY, "limits": FREE, "repairs": list(repairs), "runner": Seeing}
    return responding(folder, NODES, Recorder(NODES), **{**settings, **more})


def seeing(found: Responding) -> Seeing:
    runner = found.hub.checks._runner
    assert isinstance(runner, Seeing)
    return runner


async def newest(found: Responding, node: str = SUSPECT) -> Isolation:
    opened, ended = await found.isolations.book.listed(100)
    return next(one for one in (*opened, *ended) if one.node == node)


def texts(isolation: Isolation) -> list[str]:
    return [step.text for step in isolation.steps]


@pytest.mark.parametrize("failing", [(), ("gpu-2",), ("gpu-2", "gpu-3")])
def test_a_report_that_too_few_nodes_confirm_takes_no_node_out(
    tmp_path: Path, failing: Sequence[str]
) -> None:
    """Whatever Prometheus says: one node's report about another decides nothing."""

    async def steps() -> None:
        async with hub(tmp_path) as found:
            seeing(found).failing = {SUSPECT: set(failing)}
            found.prometheus.reported = {REPORT}
            await found.rounds(300)
            isolation = await newest(found)
            assert isolation.acted is None
            text = f"of 7 other nodes, {len(failing)} do not reach gpu-1"
            assert isolation.reason.startswith(f"not yet out of service, not confirmed: {text}")
            assert texts(isolation).count(isolation.reason) == 1
            found.prometheus.reported = set()
            await found.rounds(30)
            assert (await newest(found)).state == "ended"

    run(steps())


def test_agents_that_do_not_answer_confirm_nothing(tmp_path: Path) -> None:
    async def steps() -> None:
        async with hub(tmp_path) as found:
            seeing(found).failing = {SUSPECT: set(NODES)}
            seeing(found).silent = set(NODES[3:])
            found.prometheus.reported = {REPORT}
            await found.rounds(120)
            assert (await newest(found)).acted is None
            seeing(found).silent = set()
            await found.rounds(30)
            assert (await newest(found)).acted is not None

    run(steps())


def test_three_nodes_that_agree_take_it_out_and_the_repair_is_started_once(tmp_path: Path) -> None:
    ticket = Ticket(tmp_path)
    words = ("{node}", "{fault}", "{device_id}")
    entry = ticket.entry(*words, name="sshd", action=None, faults=["peer_unreachable"])

    async def steps() -> None:
        async with hub(tmp_path, entry) as found:
            seeing(found).failing = {SUSPECT: {"gpu-2", "gpu-3", "gpu-4", "gpu-5"}}
            found.prometheus.reported = {REPORT}
            await found.rounds(120)
            isolation = await newest(found)
            assert (isolation.state, isolation.acted is not None) == ("isolated", True)
            text = "confirmed: of 7 other nodes, 4 do not reach gpu-1 (banner)"
            assert texts(isolation).index(text) < texts(isolation).index("out of service")
            for _ in range(500):
                await found.rounds(15)
                [repair] = await repairs_of(found)
                if repair.state == "succeeded":
                    break
                await asyncio.sleep(0.02)
            assert ticket.calls() == [[SUSPECT, "peer_unreachable", "22/ssh"]]

    run(steps())


def test_by_default_nothing_is_done(tmp_path: Path) -> None:
    """Without `recovery` the report is none; in a dry run it is decided, and nothing changed."""
    ticket = Ticket(tmp_path)
    entry = ticket.entry(name="sshd", action=None, faults=["peer_unreachable"])

    async def steps() -> None:
        async with hub(tmp_path / "a", recovery=None) as found:
            found.prometheus.reported = {REPORT}
            await found.rounds(300)
            assert await found.states() == {}
        scheduler = Recorder(NODES)
        settings = {"recovery": RECOVERY, "limits": FREE, "repairs": [entry], "runner": Seeing}
        more = {**settings, "dry_run": True}
        async with responding(tmp_path / "b", NODES, scheduler, **more) as found:
            seeing(found).failing = {SUSPECT: set(NODES)}
            found.prometheus.reported = {REPORT}
            await found.rounds(300)
            isolation = await newest(found)
            assert isolation.reason == "dry run: would be out of service"
            assert any(text.startswith("confirmed: ") for text in texts(isolation))
        assert (scheduler.calls, ticket.calls()) == ([], [])

    for name in "ab":
        (tmp_path / name).mkdir()
    run(steps())


def test_limits_and_the_breaker_hold(tmp_path: Path) -> None:
    """Many nodes that others do not reach have one cause."""

    async def steps() -> None:
        async with hub(tmp_path, limits={**FREE, "nodes": 1}) as found:
            everyone = set(NODES[3:])
            seeing(found).failing = dict.fromkeys(NODES[:3], everyone)
            found.prometheus.reported = {(name, "peer_unreachable") for name in NODES[:3]}
            await found.rounds(300)
            assert sorted((await found.states()).values()) == ["isolated", "refused", "refused"]
        async with hub(tmp_path / "b", limits={**FREE, "breaker_nodes": 3}) as found:
            seeing(found).failing = dict.fromkeys(NODES[:3], everyone)
            found.prometheus.reported = {(name, "peer_unreachable") for name in NODES[:3]}
            await found.rounds(300)
            assert set((await found.states()).values()) == {"refused"}

    (tmp_path / "b").mkdir()
    run(steps())


def test_another_fault_of_the_node_needs_no_other_nodes(tmp_path: Path) -> None:
    async def steps() -> None:
        async with hub(tmp_path) as found:
            found.prometheus.reported = {REPORT}
            await found.rounds(120, (SUSPECT, "nvidia_xid"))
            assert (await newest(found)).acted is not None
            assert seeing(found).asked == []

    run(steps())


def test_a_unit_that_its_own_agent_reports_as_down(tmp_path: Path) -> None:
    """The repair gets its name; the node returns once the unit runs."""
    ticket = Ticket(tmp_path)
    entry = ticket.entry("{node}", "{device_id}", name="unit", action=None, faults=["service_down"])
    recovery = {"faults": ["service_down"]}

    async def steps() -> None:
        async with hub(tmp_path, entry, recovery=recovery, back={"enabled": True}) as found:
            seeing(found).units = {"ssh.service": True}
            found.prometheus.reported = {(SUSPECT, "service_down")}
            await found.rounds(120)
            isolation = await newest(found)
            assert isolation.acted is None
            assert isolation.reason.endswith("not confirmed: ssh.service runs on gpu-1")
            seeing(found).units = {"ssh.service": False}
            for _ in range(500):
                await found.rounds(15)
                repairs = await repairs_of(found)
                if repairs and repairs[0].state == "succeeded":
                    break
                await asyncio.sleep(0.02)
            assert ticket.calls() == [[SUSPECT, "ssh.service"]]
            found.prometheus.reported = set()
            await found.rounds(1200)
            await asyncio.sleep(0.1)
            text = "its checks gave no result, repeated: ssh.service does not run on gpu-1"
            assert (await newest(found)).reason == text

    run(steps())


def test_a_node_that_others_do_not_reach_does_not_return(tmp_path: Path) -> None:
    """Though its alert has ended: agents are asked, and asked again."""

    async def steps() -> None:
        async with hub(tmp_path, back={"enabled": True, "clean": 60.0}) as found:
            seeing(found).failing = {SUSPECT: set(NODES)}
            found.prometheus.reported = {REPORT}
            await found.rounds(120)
            found.prometheus.reported = set()
            await found.rounds(300)
            await asyncio.sleep(0.1)
            isolation = await newest(found)
            assert isolation.state == "testing"
            assert isolation.reason == (
                "its checks gave no result, repeated: of 7 other nodes, 7 do not reach gpu-1 "
                "(banner)"
            )

    run(steps())
