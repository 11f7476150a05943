"""After a fault of logins or connections: other nodes are asked, the node is taken out of service,
the site's command repairs it, other nodes reach it again, and it returns.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Coroutine, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, ExitStack
from pathlib import Path
from typing import Any

import msgspec
import pytest

from nodevitals.checks.model import Check, RunResult
from nodevitals_hub.checks.members import Members
from nodevitals_hub.checks.peer_sights import PeerSight, Sights
from nodevitals_hub.checks.runners import PlannedRun, Runner
from nodevitals_hub.launch.node_checks import NodeRunner, Nodes
from nodevitals_hub.records import Isolation
from nodevitals_hub.settings.agents import AgentsSettings
from nodevitals_hub.store.check_store import Issued
from testbed import sshd
from testbed.node import Node, free_port, wait_until
from testbed.repairs import Ticket, repairs_of
from testbed.respond import Recorder, Responding, Site, responding
from testbed.sshd import Sshd

NODES = [f"gpu-{number}" for number in range(1, 9)]
SUSPECT = "gpu-1"
REPORT = (SUSPECT, "peer_unreachable")
FREE = {"nodes": 8, "share": 1.0, "per_hour": 8, "breaker_nodes": 1000, "breaker_share": 1.0}
RECOVERY = {"faults": ["peer_unreachable", "node_reaches_nobody"], "observers": 3}
AGENTS = {"token_file": "/none", "tls": dict.fromkeys(("ca_file", "cert_file", "key_file"), "/x")}


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
            text = "its checks told nothing, tried again: ssh.service does not run on gpu-1"
            assert (await newest(found)).reason == text

    run(steps())


class AgentsOnly(Runner):
    """What the hub asks real agents of: their metrics."""

    def __init__(self, members: Members, port: int) -> None:
        settings = msgspec.convert({**AGENTS, "metrics_port": port}, AgentsSettings)
        self._members, self._nodes = members, Nodes(settings)
        self._node = NodeRunner(self._nodes, members)

    async def run(self, check: Check, run: PlannedRun, issued: Issued, again: bool) -> RunResult:
        """Run a check of a node."""
        return await self._node.run(check, run, issued, again)

    async def sights(self, nodes: Sequence[str]) -> Sights:
        """What the agents report."""
        return await self._nodes.sights(self._members.by_name[name] for name in nodes)

    async def close(self) -> None:
        """Close the connections."""
        await self._nodes.close()


class AddressedNode(Node):
    """An agent at an address of its own."""

    def __init__(self, folder: Path, address: str, port: int, config: dict[str, Any]) -> None:
        flag = f"--web.listen-address={address}:{port}"
        super().__init__(folder, config, flag, **sshd.environment())
        self.address, self.port, self.url = address, port, f"http://{address}:{port}"

    def _accepts(self) -> bool:
        assert self.process.poll() is None, self.log()
        with socket.socket() as sock:
            return sock.connect_ex((self.address, self.port)) == 0


class Cluster:
    """Four nodes, each with sshd and an agent that logs in at the others."""

    def __init__(self, folder: Path, stack: ExitStack) -> None:
        self.port = free_port()
        self.names = [f"127.0.0.{number}" for number in range(11, 15)]
        key = sshd.make_key(folder / "key")
        known_hosts = folder / "known_hosts"
        self.servers: dict[str, Sshd] = {}
        for name in self.names:
            server = stack.enter_context(Sshd(folder / f"sshd-{name}", name))
            server.authorize(key)
            self.servers[name] = server
        known_hosts.write_text("".join(one.known_host() for one in self.servers.values()))
        login = {"user": sshd.USER, "key_file": str(key), "known_hosts_file": str(known_hosts)}
        self.agents: dict[str, AddressedNode] = {}
        for name in self.names:
            others = [{"host": one, "protocol": "ssh"} for one in self.names if one != name]
            probe: dict[str, Any] = {"interval": "2s", "timeout": "2s", "targets": others}
            probe["login"] = {**login, "per_run": 3, "timeout": "1500ms"}
            (folder / name).mkdir()
            node = AddressedNode(folder / name, name, self.port, {"probes": {"peers": probe}})
            self.agents[name] = node
            stack.enter_context(node)

    def reached(self, name: str) -> list[float | None]:
        """Whether each other node reaches this one."""
        return [
            agent.value("nodevitals_peer_reachable", peer=name)
            for other, agent in self.agents.items()
            if other != name
        ]


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    with ExitStack() as stack:
        yield Cluster(tmp_path, stack)


def test_sshd_is_killed_restarted_and_the_node_returns(tmp_path: Path, cluster: Cluster) -> None:
    """Real sshd, real agents, and the commands of a site; alerts and time are those of the test."""
    suspect = cluster.names[1]
    site = Site(tmp_path, cluster.names)
    restart = tmp_path / "restart-sshd"
    restart.write_text(f"#!/bin/sh\nexec {tmp_path}/sshd-$1/start\n")
    restart.chmod(0o755)
    repair = {
        "name": "restart-sshd",
        "faults": ["peer_unreachable"],
        "command": [str(restart), "{node}"],
        "when_empty": False,
        "dry_run": False,
    }

    async def until(condition: Any) -> None:
        await asyncio.to_thread(wait_until, condition)

    async def steps() -> None:
        async with responding(
            tmp_path,
            cluster.names,
            command=site.commands(),
            recovery={"faults": ["peer_unreachable"], "observers": 3},
            limits=FREE,
            repairs=[repair],
            back={"enabled": True},
            runner=lambda members: AgentsOnly(members, cluster.port),
        ) as found:
            await until(lambda: cluster.reached(suspect) == [1, 1, 1])
            cluster.servers[suspect].kill()
            await until(lambda: cluster.reached(suspect) == [0, 0, 0])
            found.prometheus.reported = {(suspect, "peer_unreachable")}
            await found.rounds(90)
            isolation = await newest(found, suspect)
            assert f"confirmed: of 3 other nodes, 3 do not reach {suspect} (refused)" in texts(
                isolation
            )
            assert site.get(suspect) == f"isolated {isolation.id}"
            for _ in range(2000):
                await found.rounds(15)
                repairs = await repairs_of(found)
                if repairs and repairs[0].state not in ("wanted", "started"):
                    break
                await asyncio.sleep(0.02)
            assert [one.state for one in repairs] == ["succeeded"]
            await until(lambda: cluster.reached(suspect) == [1, 1, 1])
            found.prometheus.reported = set()
            for _ in range(500):
                await found.rounds(60)
                if site.get(suspect) == "in service":
                    break
                await asyncio.sleep(0.05)
            isolation = await newest(found, suspect)
            assert (isolation.state, site.get(suspect)) == ("returned", "in service")
            assert site.log("isolate") == [suspect]

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
                "its checks told nothing, tried again: of 7 other nodes, 7 do not reach gpu-1 "
                "(banner)"
            )

    run(steps())
