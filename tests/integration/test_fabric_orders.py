"""Tests that the hub orders: agents in network namespaces, real iperf3, and a client as the hub."""

from __future__ import annotations

import json
import multiprocessing
import signal
import subprocess
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from http.client import HTTPException
from typing import Any

import psutil
import pytest

from nodevitals.probes.fabric.server import MAX_WAITS
from testbed.fabric import TOKEN, Fabric
from testbed.namespaces import ip
from testbed.node import Node, wait_until
from testbed.ordering import HUB_TOKEN, ORDERS, OrderClient, order

TCP = {"tool": "iperf3", "operation": "tcp", "device": "fab0", "iterations": 16}
LONG = {**TCP, "seconds": 30, "timeout": 40}
MEMBERS = "nodevitals_fabric_members"
A, B, C = "10.98.0.1", "10.98.0.2", "10.98.0.3"
# The lease, and the second within which a tool must be gone, on a machine that is busy.
LEASE_LIMIT = 15 + 10


class Site:
    """Three nodes without a planned test, and the orders for them."""

    def __init__(self, fabric: Fabric) -> None:
        self.fabric = fabric
        self.names = {address: name for name, address in fabric.addresses.items()}
        self.placed: list[dict[str, Any]] = []

    def node(self, address: str) -> Node:
        return self.fabric.nodes[self.names[address]]

    def client(self, address: str, folder: str = "hub", token: str = HUB_TOKEN) -> OrderClient:
        return self.fabric.client(self.names[address], folder, token)

    def put(self, wanted: dict[str, Any], side: str) -> tuple[int, dict[str, Any]]:
        self.placed.append(wanted)
        return self.client(wanted[side]).put({**wanted, "node": wanted[side]})

    def place(self, wanted: dict[str, Any]) -> dict[str, Any]:
        """Order it on the target, then on the source."""
        for side in ("target", "source"):
            status, body = self.put(wanted, side)
            assert status == 200, body
        return wanted

    def count(self, family: str, address: str, **labels: str) -> float:
        """The value of a counter, which may not have started."""
        return self.node(address).value(f"nodevitals_fabric_{family}", **labels) or 0.0

    def restart(self, address: str) -> None:
        """End the agent and start it again."""
        node = self.node(address)
        node.end()
        node.start()
        wait_until(lambda: node.value(MEMBERS) == len(self.names))

    def done(self, wanted: dict[str, Any], side: str = "source") -> dict[str, Any]:
        """Its state once it is done."""

        def ended() -> dict[str, Any] | None:
            status, body = self.client(wanted[side]).get(wanted["id"], 5)
            assert status == 200, body
            return body if body["state"] == "done" else None

        found: dict[str, Any] = wait_until(ended, 60)
        return found

    def run(self, *tests: dict[str, Any], **more: Any) -> tuple[dict[str, Any], dict[str, Any]]:
        """The states of the source A and of the target B of an order that has ended."""
        wanted = self.place(order(A, B, *tests, **more))
        return self.done(wanted), self.done(wanted, "target")

    def tools(self, address: str) -> list[psutil.Process]:
        """The tools that run on a node."""
        agent = psutil.Process(self.node(address).process.pid)
        return [one for one in agent.children(recursive=True) if _name(one) == "iperf3"]

    def running(self, wanted: dict[str, Any]) -> None:
        """Wait until its tools run on both nodes."""
        wait_until(lambda: self.tools(wanted["source"]) and self.tools(wanted["target"]), 30)

    def quiet(self) -> bool:
        """Whether no tool runs."""
        return not any(self.tools(address) for address in self.names)


def _name(process: psutil.Process) -> str:
    try:
        return process.name()
    except psutil.NoSuchProcess:
        return ""


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    folder = tmp_path_factory.mktemp("site")
    gate = {"require_idle": False, "job_file": f"{folder}/job"}
    gate["maintenance_file"] = f"{folder}/maintenance"
    budget = {"seconds_per_hour": 3600, "bytes_per_hour": 10**15}
    settings: dict[str, Any] = {"slot": "60s", "tests": [], "gate": gate, "budget": budget}
    with Fabric(folder, 3, hub={}, **settings) as fabric:
        with ThreadPoolExecutor(2) as threads:
            list(threads.map(lambda name: _start(fabric, name), fabric.names))
        yield Site(fabric)


@pytest.fixture
def site(shared: Site) -> Iterator[Site]:
    """The site; after each test, it runs an order again as it did before."""
    yield shared
    for file in ("job", "maintenance"):
        (shared.fabric.folder / file).unlink(missing_ok=True)
    for wanted in shared.placed:
        for side in ("target", "source"):
            shared.client(wanted[side]).delete(wanted["id"])
    shared.placed.clear()
    source, target = shared.run(TCP)
    assert [one["outcome"] for one in source["reports"]] == ["ok"], (source, target)
    wait_until(shared.quiet, what="the end of the tools")


def _start(fabric: Fabric, name: str) -> None:
    node = fabric.nodes[name]
    node.write(fabric.config(name))
    node.start()
    wait_until(lambda: node.value(MEMBERS) == len(fabric.names))


def test_sizes_are_measured_one_after_the_other(site: Site) -> None:
    """With the traffic class; counted on both sides, and charged."""
    sizes = (4096, 65536, 1048576)
    tests = [{**TCP, "message_bytes": size, "traffic_class": 8} for size in sizes]
    before = [site.count("test_bytes_total", address) for address in (A, B)]
    source, target = site.run(*tests)
    assert [one["outcome"] for one in source["reports"]] == ["ok"] * 3, source
    assert [one["rows"][0]["message_bytes"] for one in source["reports"]] == list(sizes)
    assert (source["skipped"], target["skipped"]) == ("", "")
    for run, size in zip(source["runs"], sizes, strict=True):
        assert run["command"].startswith(f"iperf3 -c {B} -p ")
        assert run["command"].endswith(f" -l {size} -P 1 --tos 8 -B {A} -J")
        assert '"tos":\t8' in run["output"]
    for run in target["runs"]:
        assert run["command"].startswith("iperf3 -s -1 -p ")
        assert "Server listening" in run["output"]
    assert len(target["runs"]) == 3
    for state in (source, target):
        assert set(state["versions"]) == {"nodevitals", "iperf3"}
    for address, value in zip((A, B), before, strict=True):
        _wait_for_count(site, "test_bytes_total", address, value + 16 * sum(sizes))
    assert site.count("bandwidth_bytes_per_second", A) == 0


def _wait_for_count(site: Site, family: str, address: str, least: float) -> None:
    wait_until(lambda: site.count(family, address) >= least)


def test_duration_is_charged_at_the_rate_of_the_link(site: Site) -> None:
    """One second of a link with 1 Gb/s."""
    for address in (A, B):
        link = site.fabric.folder / site.names[address] / "sys/class/net/fab0"
        (link / "speed").write_text("1000\n")
    before = site.count("test_bytes_total", A)
    source, _ = site.run({**TCP, "seconds": 1, "timeout": 10, "queue_pairs": 2})
    assert source["reports"][0]["outcome"] == "ok", source
    assert '"duration":\t1' in source["runs"][0]["output"]
    assert '"num_streams":\t2' in source["runs"][0]["output"]
    # The order before this one may be counted late.
    wait_until(lambda: 125e6 <= site.count("test_bytes_total", A) - before < 130e6)


def test_state_has_the_rate_of_a_physical_port(site: Site) -> None:
    """That of a virtual device is invented: there is none."""
    links = [site.fabric.folder / site.names[one] / "sys/class/net/fab0" for one in (A, B)]
    for link, speed in zip(links, ("10000", "25000"), strict=True):
        (link / "speed").write_text(f"{speed}\n")
    for ports in ([None, None], [1.25e9, None], [1.25e9, 3.125e9]):
        for link, port in zip(links, ports, strict=True):
            if port is not None and not (link / "device").is_symlink():
                (link / "device").symlink_to("../../../0000:18:00.0")
        states = site.run(TCP)
        assert [one["runs"][0].get("port_bytes_per_second") for one in states] == ports
    for link in links:
        (link / "device").unlink()


def test_a_test_that_does_not_end_in_its_time_is_still_transferring(site: Site) -> None:
    """64 GiB of a stream take more than two seconds, whatever the machine."""
    endless = {**TCP, "message_bytes": 1 << 20, "iterations": 1 << 16, "timeout": 2}
    source, _ = site.run(endless)
    (report,) = source["reports"]
    assert (report["reason"], report["message"]) == ("timeout", "still transferring after 2 s")


def test_network_device_must_exist_on_both_nodes(site: Site) -> None:
    """iperf3 is not told of it. A bond and a VLAN are devices, the list of bonds is none."""
    nets = {
        address: site.fabric.folder / site.names[address] / "sys/class/net" for address in (A, B)
    }
    for net in nets.values():
        (net / "bonding_masters").write_text("bond0\n")
    for net, device in ((nets[A], "bond0.7"), (nets[B], "bond0.7"), (nets[A], "eth9")):
        (net / device).mkdir()
        (net / device / "ifindex").write_text("7\n")
    source, _ = site.run({**TCP, "device": "bond0.7"})
    assert source["reports"][0]["outcome"] == "ok", source
    for device, node in (("eth9", B), ("bonding_masters", A)):
        source, target = site.run({**TCP, "device": device})
        (report,) = source["reports"]
        assert (report["outcome"], report["reason"]) == ("failed", "no_device"), source
        assert report["message"] == f"{node} has no network device {device}: write another one"
        assert not any(run.get("command") for run in source["runs"] + target["runs"])


@pytest.mark.parametrize(
    "addresses",
    [("198.51.100.1", "198.51.100.2"), ("fd00:99::1", "fd00:99::2")],
    ids=["IPv4", "IPv6"],
)
def test_bytes_cross_the_named_device(site: Site, addresses: tuple[str, str]) -> None:
    """Each node has a second link, which no name leads to. The target calls it by another name."""
    spaces = [site.fabric.spaces[site.names[one]].name for one in (A, B)]
    devices = ("rail1", "rail2")
    pair = ["link", "add", devices[0], "netns", spaces[0], "type", "veth"]
    ip(*pair, "peer", "name", devices[1], "netns", spaces[1])
    for node, space, device, own in zip((A, B), spaces, devices, addresses, strict=True):
        length, more = ("64", ["nodad"]) if ":" in own else ("24", [])
        ip("-n", space, "addr", "add", f"{own}/{length}", "dev", device, *more)
        ip("-n", space, "link", "set", device, "up")
        simulated = site.fabric.folder / site.names[node] / "sys/class/net" / device
        simulated.mkdir(exist_ok=True)
        (simulated / "ifindex").write_text("9\n")
    try:
        source, _ = site.run({**TCP, "device": devices[0], "peer_device": devices[1]})
        assert source["reports"][0]["outcome"] == "ok", source
        words = source["runs"][0]["command"].split()
        assert (words[words.index("-c") + 1], words[words.index("-B") + 1]) == addresses[::-1]
        show = ["ip", "-n", spaces[1], "-s", "-j", "link", "show", devices[1]]
        [link] = json.loads(subprocess.check_output(show))
        assert link["stats64"]["rx"]["bytes"] > 16 * 65536
    finally:
        ip("-n", spaces[0], "link", "delete", devices[0])


def test_order_is_executed_once(site: Site) -> None:
    """Repeated, it returns its state; after a restart, and once deleted, it is refused."""
    wanted = site.place(order(A, B, TCP))
    first = site.done(wanted)
    assert site.put(wanted, "source") == (200, first)
    other = {**wanted, "tests": [{**TCP, "iterations": 32}]}
    assert site.put(other, "source")[1]["refusal"] == "invalid"
    site.restart(A)
    assert site.client(A).get(wanted["id"])[1]["refusal"] == "unknown"
    status, body = site.put(wanted, "source")
    assert (status, body["refusal"]) == (409, "stale")
    assert body["message"] == "was issued before this agent started"
    late = order(A, B, TCP)
    assert site.client(A).delete(late["id"])[1]["refusal"] == "unknown"
    assert site.put(late, "source")[1]["refusal"] == "stale"


def test_every_refusal(site: Site) -> None:
    """None of them leaves the node occupied."""
    now = time.time()
    started = psutil.Process(site.node(A).process.pid).create_time()
    device = "tests[0].device: '../..' is no name of a device"
    cases: list[tuple[dict[str, Any], int, str, str]] = [
        (order(B, C, TCP), 409, "not_this_node", f"this is {A}"),
        ({**order(A, B, TCP), "node": B}, 409, "not_this_node", f"this is {A}"),
        (order(A, "10.98.0.9", TCP), 409, "not_listed", "10.98.0.9 is not on the lists"),
        (order(A, A, TCP), 409, "invalid", "source and target are the same node"),
        (order(A, B, TCP, TCP), 409, "invalid", "two tests are the same"),
        (order(A, B, {**TCP, "device": "../.."}), 409, "invalid", device),
        (order(A, B, {**TCP, "device": "-d"}), 409, "invalid", "tests[0].device"),
        (order(A, B, {**TCP, "operation": "rm"}), 409, "invalid", "tests[0].operation"),
        (order(A, B, {**TCP, "gid_index": 3}), 409, "invalid", "tests[0].gid_index"),
        (order(A, B, {**TCP, "seconds": 30}), 409, "invalid", "tests[0].timeout"),
        (order(A, B, {**TCP, "seconds": 0}), 409, "invalid", "$.tests[0].seconds"),
        (order(A, B, {**TCP, "command": "x"}), 409, "invalid", "$.tests[0]"),
        (order(A, B), 409, "invalid", "$.tests"),
        (order(A, B, TCP, force=True), 403, "forbidden", "hub.force"),
        (order(A, B, TCP, issued=now - 200), 409, "stale", "over 120"),
        (order(A, B, TCP, issued=now + 60), 409, "stale", "in the future"),
        (order(A, B, TCP, issued=started - 1), 409, "stale", "before this agent started"),
    ]
    client = site.client(A)
    before = site.count("orders_total", A, outcome="refused")
    for wanted, status, refusal, text in cases:
        found, body = client.put(wanted)
        assert (found, body["refusal"]) == (status, refusal), body
        assert text in body["message"], body
        assert "\n" not in body["message"]
    assert client.get("order-unknown")[1]["refusal"] == "unknown"
    after = before + len(cases)
    wait_until(lambda: site.count("orders_total", A, outcome="refused") >= after)


def _has_logged(node: Node, text: str) -> bool:
    return text in node.log()


def test_orders_are_in_the_log_and_a_flood_of_refusals_is_not(site: Site) -> None:
    """One line each of what was accepted and of its end; refusals are counted beyond ten."""
    site.restart(A)
    node = site.node(A)
    wanted = site.place(order(A, B, TCP))
    site.done(wanted)
    canceled = site.place(order(A, B, LONG))
    site.running(canceled)
    site.client(A).delete(canceled["id"])
    for line in (
        f"order {wanted['id']} accepted: iperf3 tcp from {A} to {B}",
        f"order {wanted['id']} ended: ok",
        f"order {canceled['id']} ended: canceled",
    ):
        wait_until(partial(_has_logged, node, f"fabric: {line}"), what=line)
    refused = node.log().count("fabric: order refused: ")
    before = site.count("orders_total", A, outcome="refused")
    for number in range(30):
        site.client(A).put(order(A, f"10.98.1.{number}", TCP))
    site.client(A).put(order(A, "\x1b[31m\x00\u2028x", TCP))
    wait_until(lambda: site.count("orders_total", A, outcome="refused") >= before + 31)
    wait_until(lambda: node.log().count("fabric: order refused: ") >= refused + 10)
    assert node.log().count("fabric: order refused: ") == refused + 10
    assert "order refused: not_listed: 10.98.1.0 is not on the lists of this node" in node.log()


def test_only_the_hub_orders(site: Site) -> None:
    """Neither its certificate nor its token is enough alone, and both open no planned test."""
    wanted = order(A, B, TCP)
    path = f"{ORDERS}/{wanted['id']}"
    attempts = [
        site.client(A, "hub", TOKEN),  # the agents' token
        site.client(A, "hub", "x"),
        site.client(A, site.names[B], TOKEN),  # an agent
        site.client(A, site.names[B], HUB_TOKEN),  # an agent that has stolen the hub's token
    ]
    found = [one.put({**wanted, "node": A})[0] for one in attempts]
    assert found == [401, 401, 401, 403]
    for method in ("GET", "DELETE"):
        assert [one.request(method, path)[0] for one in attempts] == [401, 401, 401, 403]
    assert attempts[3].put(wanted)[1]["refusal"] == "forbidden"
    planned = {"id": "x", "source": B, "slot": int(time.time() // 60), "test": "any"}
    hub = site.client(A)
    status, body = hub.request("POST", "/fabric/v1/tests", str(planned).encode())
    assert (status, body["text"].split(":")[0]) == (401, "401 Unauthorized")
    token = site.fabric.folder / "hub-token"
    token.write_text("a new token of the hub\n")
    wait_until(lambda: hub.get("order-unknown")[0] == 401, 20, "the new token")
    renewed = site.client(A, token="a new token of the hub")
    assert renewed.get("order-unknown")[0] == 409
    token.write_text(TOKEN)  # of the agents: then it opens nothing
    wait_until(lambda: renewed.get("order-unknown")[0] == 401, 20, "no token")
    assert site.client(A, token=TOKEN).get("order-unknown")[0] == 401
    assert site.node(A).value("nodevitals_probe_success", probe="fabric") == 1
    token.write_text(HUB_TOKEN)
    for address in (A, B, C):
        one = site.client(address)
        wait_until(lambda: one.get("order-unknown")[0] == 409, 20, "the token")  # noqa: B023


def test_target_serves_only_what_was_ordered_there(site: Site) -> None:
    """Not for a source, a test, or an identity that the hub has not named on it."""
    wanted = order(A, B, TCP)
    assert site.put(wanted, "source")[0] == 200
    state = site.done(wanted)
    assert state["reports"][0]["reason"] == "harness", state
    assert "no such order here" in state["reports"][0]["message"]
    wanted = order(A, B, TCP)
    assert site.put({**wanted, "source": C}, "target")[0] == 200
    assert site.put(wanted, "source")[0] == 200
    assert "no such order here" in site.done(wanted)["reports"][0]["message"]
    site.client(B).delete(wanted["id"])
    wanted = order(A, B, TCP)
    assert site.put({**wanted, "tests": [{**TCP, "iterations": 32}]}, "target")[0] == 200
    assert site.put(wanted, "source")[0] == 200
    assert "has not this test" in site.done(wanted)["reports"][0]["message"]
    assert site.done(wanted, "target")["skipped"] == ""


def test_delete_ends_it_at_once(site: Site) -> None:
    """The tools are gone with the responses, and the nodes are free."""
    wanted = site.place(order(A, B, LONG, TCP))
    site.running(wanted)
    for address in (A, B):
        status, body = site.client(address).delete(wanted["id"])
        assert (status, body["state"], body["skipped"]) == (200, "done", "canceled")
        assert not site.tools(address)


def test_delete_on_one_side_ends_both(site: Site) -> None:
    """The hub may not reach the other one."""
    wanted = site.place(order(A, B, LONG))
    site.running(wanted)
    site.client(B).delete(wanted["id"])
    assert site.done(wanted)["skipped"] == "canceled"
    wait_until(lambda: not site.tools(A), what="the end of the tools")


def _hub(fabric: Fabric, wanted: dict[str, Any]) -> None:
    """A hub that orders a test, and asks for it until it is killed."""
    site = Site(fabric)
    site.place(wanted)
    while True:
        for side in ("target", "source"):
            site.client(wanted[side]).get(wanted["id"], 1)


def test_order_of_a_killed_hub_ends_with_its_lease(site: Site) -> None:
    before = site.count("orders_total", A, outcome="lease")
    wanted = order(A, B, {**LONG, "seconds": 60, "timeout": 70})
    hub = multiprocessing.get_context("fork").Process(target=_hub, args=(site.fabric, wanted))
    hub.start()
    site.running(wanted)
    assert hub.pid is not None
    psutil.Process(hub.pid).send_signal(signal.SIGKILL)
    hub.join()
    wait_until(site.quiet, LEASE_LIMIT, "the end of the tools")
    assert {site.done(wanted, side)["skipped"] for side in ("source", "target")} == {"lease"}
    wait_until(lambda: site.count("orders_total", A, outcome="lease") > before)


def test_restarted_agents_leave_no_tool(site: Site) -> None:
    """Killed at any moment: the other side ends its order too."""
    for killed, other in ((A, B), (B, A)):
        wanted = site.place(order(A, B, LONG))
        site.running(wanted)
        site.node(killed).kill()
        wait_until(lambda: not site.tools(other), 30, "the end of the other side")  # noqa: B023
        site.node(killed).start()
        wait_until(lambda: site.node(killed).value(MEMBERS) == 3)  # noqa: B023
        site.client(other).delete(wanted["id"])


@pytest.mark.parametrize("reason", ["job_marker", "maintenance"])
def test_job_that_arrives_stops_it(site: Site, reason: str) -> None:
    wanted = site.place(order(A, B, LONG, TCP))
    site.running(wanted)
    (site.fabric.folder / reason.removesuffix("_marker")).touch()
    wait_until(site.quiet, what="the end of the tools")
    found = {side: site.done(wanted, side)["skipped"] for side in ("source", "target")}
    assert reason in found.values()
    assert set(found.values()) <= {reason, "peer_busy"}
    source, target = site.run(TCP)
    assert (source["skipped"], source["reports"]) == (reason, [])
    assert target["skipped"] == ""


def test_forced_order_runs_beside_a_job(site: Site) -> None:
    """Where the agents allow it, and not during maintenance."""
    _allow_force(site, True)
    (site.fabric.folder / "job").touch()
    assert site.run(TCP)[0]["skipped"] == "job_marker"
    assert site.run(TCP, force=True)[0]["reports"][0]["outcome"] == "ok"
    (site.fabric.folder / "maintenance").touch()
    assert site.run(TCP, force=True)[0]["skipped"] == "maintenance"
    (site.fabric.folder / "maintenance").unlink()
    _allow_force(site, False)


def _allow_force(site: Site, allowed: bool) -> None:
    site.fabric.hub = {"force": allowed}
    for address in (A, B):
        name = site.names[address]
        site.fabric.nodes[name].write(site.fabric.config(name))
        site.restart(address)


def test_crossing_orders_block_nothing(site: Site) -> None:
    """Each node takes one as its target, and neither waits for the other."""
    one, other = order(A, B, TCP), order(B, A, TCP)
    assert site.put(one, "target")[0] == 200
    assert site.put(other, "target")[0] == 200
    for wanted in (one, other):
        status, body = site.put(wanted, "source")
        assert (status, body["refusal"], body["reason"]) == (409, "busy", "testing")


def test_one_of_three_orders_is_accepted(site: Site) -> None:
    wanted = [order(B, A, LONG), order(C, A, LONG), order(A, B, LONG)]
    sides = ["target", "target", "source"]
    with ThreadPoolExecutor(3) as threads:
        found = list(threads.map(site.put, wanted, sides))
    assert sorted(status for status, _ in found) == [200, 409, 409]
    assert {body["refusal"] for status, body in found if status == 409} == {"busy"}


def test_hostile_requests_keep_no_order_out(site: Site) -> None:
    """Garbage, bodies without an end, too many waiting requests: the next order runs."""
    client = site.client(A)
    path = f"{ORDERS}/order-hostile"
    assert client.request("PUT", path, b"{" * 30_000)[1]["refusal"] == "invalid"
    assert client.request("PUT", path, b"\xff\x00")[1]["refusal"] == "invalid"
    assert client.request("PUT", path, b"[" * 32_000)[1]["refusal"] == "invalid"
    assert client.raw(client.head("PUT", path, 32 * 1024 + 1)) == 413
    assert client.raw(client.head("PUT", path, 10**6)) == 411
    for wrong in (ORDERS, f"{ORDERS}/", f"{path}/x", f"{path}?wait=x", f"{ORDERS}/../x1234567"):
        assert client.request("GET", wrong)[0] in (401, 404), wrong
    wanted = site.place(order(A, B, LONG))
    site.running(wanted)

    def wait() -> None:
        with suppress(OSError, HTTPException):  # cut to make room
            client.get(wanted["id"], 9)

    waiting = [threading.Thread(target=wait, daemon=True) for _ in range(40)]
    slow = [client.slow(client.head("PUT", path, 1000)) for _ in range(40)]
    for thread in waiting:
        thread.start()
    # Until the server has handled the flood: while it lasts, the oldest connection that has sent no
    # request is cut, and the hub tries again.
    wait_until(lambda: sum(thread.is_alive() for thread in waiting) <= MAX_WAITS)
    assert client.delete(wanted["id"])[1]["state"] == "done"
    site.client(B).delete(wanted["id"])
    assert site.run(TCP)[0]["reports"][0]["outcome"] == "ok"
    for sock in slow:
        sock.close()
    for thread in waiting:
        thread.join(30)
    assert "Traceback" not in site.node(A).log()
