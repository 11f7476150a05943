"""What hostile or broken agents send to the hub: it costs their own results, and nothing else."""

from __future__ import annotations

import asyncio
import gzip
import ssl
from pathlib import Path

import msgspec
import pytest

from nodevitals.probes.fabric.orders import OrderStatus
from nodevitals.probes.fabric.settings import FabricTlsSettings
from nodevitals.wire import LeaseState
from nodevitals_hub.checks.check_requests import Member
from nodevitals_hub.launch import agent_orders as agents_module
from nodevitals_hub.launch.node_checks import MAX_CHARACTERS, MAX_NAMED, Facts, Nodes
from nodevitals_hub.leases.lease_book import AgentError
from nodevitals_hub.leases.lease_client import LeaseClient
from nodevitals_hub.settings.agents import AgentsSettings
from testbed.agentorders import AgentOrders
from testbed.http_server import HttpServer, Response

UP = b'nodevitals_accelerator_up{device="0"} 1\n'


def agent(
    body: bytes,
    headers: dict[str, str],
    status: int = 200,
    tls: ssl.SSLContext | None = None,
) -> HttpServer:
    """An agent that gives one response to everything."""
    return HttpServer(lambda _: Response(status, body, headers), "0.0.0.0", tls)


def facts_of(body: bytes, **headers: str) -> Facts:
    """What the hub knows of a node with this page."""

    async def ask(port: int) -> Facts:
        tls = FabricTlsSettings(cert_file="c", key_file="k", ca_file="a")
        nodes = Nodes(AgentsSettings(token_file="t", tls=tls, metrics_port=port))
        try:
            found = await nodes.facts([Member(name="gpu-1", host="127.0.0.1", port=1)])
        finally:
            await nodes.close()
        return found["gpu-1"]

    names = {name.replace("_", "-"): value for name, value in headers.items()}
    with agent(body, names) as server:
        return asyncio.run(ask(server.port))


def lease_states(
    folder: Path, body: bytes, status: int = 200, headers: dict[str, str] | None = None
) -> dict[str, LeaseState]:
    """What the hub takes from an agent's reply to a lease of the probe `rdma`."""
    agents = AgentOrders(folder, 1)
    settings = msgspec.convert(agents.agents, AgentsSettings)
    with agent(body, headers or {}, status, agents.context) as server:
        member = Member(name="gpu-1", host=agents.names[0], port=server.port)
        return asyncio.run(LeaseClient(settings).send(member, ("rdma",), 30.0))


def order_state(folder: Path, body: bytes) -> agents_module.Response:
    """What the hub takes from an agent's answer to a request for an order."""
    bed = AgentOrders(folder, 1)
    settings = msgspec.convert(bed.agents, AgentsSettings)

    async def ask(port: int) -> agents_module.Response:
        client = agents_module.Agents(settings)
        try:
            member = Member(name="gpu-1", host=bed.names[0], port=port)
            return await client.get(member, "nv-order-1")
        finally:
            await client.close()

    with agent(body, {}, 200, bed.context) as server:
        return asyncio.run(ask(server.port))


@pytest.mark.parametrize(
    "page",
    [
        b'nodevitals_accelerator_up{device="0"} +Inf\n',
        b"nodevitals_accelerators_expected -Inf\n",
        b"nodevitals_accelerator_up 1e308\nnodevitals_accelerator_up 1e308\n",
        b"nodevitals_accelerator_up -1\n",
        b"nodevitals_accelerator_up{\n",
        b"nodevitals_accelerator_up \xff\n",
        UP * 5001,
    ],
)
def test_a_page_that_makes_no_sense_is_a_problem_of_its_node(page: bytes) -> None:
    facts = facts_of(page)
    assert facts.problem.startswith("/metrics: ")
    assert facts.devices_up is None


def test_a_compressed_page_is_read_within_the_limit() -> None:
    assert facts_of(gzip.compress(UP), content_encoding="gzip") == Facts(devices_up=1)
    bomb = gzip.compress(b"#" * (32 << 20))
    assert "over" in facts_of(bomb, content_encoding="gzip").problem
    twice = gzip.compress(gzip.compress(UP))
    assert "gzip, gzip" in facts_of(twice, content_encoding="gzip, gzip").problem
    assert "gzip" in facts_of(gzip.compress(UP)[:-9], content_encoding="gzip").problem
    assert "gzip" in facts_of(UP, content_encoding="gzip").problem


def test_names_of_a_page_are_bounded() -> None:
    long = "x" * 100_000
    lines = [f'nodevitals_build_info{{version="{long}"}} 1']
    lines += [f'nodevitals_probe_success{{probe="{n}{long[:1000]}"}} 0' for n in range(1000)]
    facts = facts_of("\n".join(lines).encode() + b"\n")
    assert len(facts.version) == MAX_CHARACTERS
    assert len(facts.failing_probes) == MAX_NAMED
    assert max(map(len, facts.failing_probes)) == MAX_CHARACTERS


@pytest.mark.parametrize(
    ("status", "body", "headers", "text"),
    [
        (500, b"no", {"content-type": "text/plain; charset=hex"}, "HTTP 500: no"),
        (200, b"[" * 100_000, {}, "over 65536 bytes"),
        (200, b'{"x": ' + b"[" * 60_000, {}, "unreadable reply"),
        (200, b'{"states": {"rdma": "yes"}}', {}, "unreadable reply"),
        (200, gzip.compress(b"x", mtime=0), {"content-encoding": "gzip"}, "unreadable reply"),
        (302, b"", {"location": "https://198.51.100.1/"}, "HTTP 302"),
    ],
)
def test_a_reply_to_a_lease_that_makes_no_sense(
    tmp_path: Path, status: int, body: bytes, headers: dict[str, str], text: str
) -> None:
    with pytest.raises(AgentError, match=text):
        lease_states(tmp_path, body, status, headers)


@pytest.mark.parametrize(
    ("body", "text"),
    [
        (b'{"id": "../lease", "state": "done"}', "the state of another order"),
        (b'{"id": "nv-another-order", "state": "done"}', "the state of another order"),
        (b'{"x": ' + b"[" * 60_000, "not a response of an agent"),
        (b'{"id": "nv-order-1", "state": "done", "seconds": 1e999}', "not a response of an agent"),
        (
            b'{"id": "nv-order-1", "state": "done", "skipped": "' + b"x" * 600_000,
            "over 524288 bytes",
        ),
    ],
)
def test_a_state_of_an_order_that_makes_no_sense(tmp_path: Path, body: bytes, text: str) -> None:
    with pytest.raises(agents_module.AgentError, match=text):
        order_state(tmp_path, body)


def test_a_state_of_an_order_has_no_more_than_an_agent_keeps(tmp_path: Path) -> None:
    long = "a\n" * 20_000
    row = {"message_bytes": 8, "bandwidth_bytes_per_second": 1e9}
    report = {"outcome": "ok", "message": long[:1000], "rows": [row] * 10}
    run = {"command": long[:3000], "output": long, "port_bytes_per_second": 1e300}
    sent = {"skipped": long[:9000], "seconds": -1e300, "reports": [report] * 65, "runs": [run] * 4}
    sent["versions"] = {f"{n}{long[:500]}": long[:500] for n in range(20)}
    body = msgspec.json.encode({"id": "nv-order-1", "state": "done", **sent})
    found = order_state(tmp_path, body)
    assert isinstance(found, OrderStatus)
    assert (len(found.reports), len(found.runs)) == (64, 4)
    assert len(msgspec.json.encode(found)) < 220_000
    assert "\n" not in found.skipped + found.reports[0].message + "".join(found.versions)
    assert found.seconds == 0


@pytest.mark.parametrize("rate", [-1.0, 0.0, 0.5, 1e16, 1e300])
def test_a_port_with_a_rate_that_makes_no_sense_has_none(tmp_path: Path, rate: float) -> None:
    run = {"port_bytes_per_second": rate}
    sent = {"id": "nv-order-1", "state": "done", "runs": [run]}
    found = order_state(tmp_path, msgspec.json.encode(sent))
    assert isinstance(found, OrderStatus)
    assert found.runs[0].port_bytes_per_second is None


def test_an_agent_grants_only_what_it_was_asked_for(tmp_path: Path) -> None:
    body = b'{"states": {"rdma": "active", "network": "active"}}'
    assert lease_states(tmp_path, body) == {"rdma": "active"}
