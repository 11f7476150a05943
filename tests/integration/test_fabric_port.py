"""The fabric port against hostile clients and peers: who may open what, how often, at what cost."""

from __future__ import annotations

import socket
import ssl
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from http.client import HTTPException, HTTPResponse
from pathlib import Path
from typing import Any

import psutil
import pytest
import trustme

from nodevitals.probes.fabric.members import Roster
from testbed.fabricport import PATH, TEST_KEY, FabricPort
from testbed.loopback import TEST, Loopback
from testbed.node import Node, wait_until

TARGET, SOURCE, OTHER = "127.0.0.2", "127.0.0.3", "127.0.0.4"
TEST_BYTES = 65_536_000
BYTES = "nodevitals_fabric_test_bytes_total"
# Slots up to 30 s ahead are accepted, and in two of six the target is tested by another node.
SLOT_SECONDS = 4.0
MAX_THREADS = 40
ATTEMPTS = 201


@pytest.fixture
def target(tmp_path: Path) -> Iterator[Loopback]:
    """A loopback of three of which only the target runs; the test takes the parts of the others."""
    test = {**TEST, "timeout": "500ms"}
    with Loopback(tmp_path, 3, slot=f"{SLOT_SECONDS:g}s", tests=[test]) as made:
        made.nodes[TARGET].start()
        wait_until(lambda: made.nodes[TARGET].value("nodevitals_fabric_members") == 3)
        yield made


def planned(made: Loopback) -> tuple[str, int]:
    """The last slot that is accepted now, which it is for half a minute or more; and the node that
    opens a test on the target.
    """
    roster = Roster((name, "") for name in made.names)
    first = int(time.time() / SLOT_SECONDS)
    pairings = ((roster.pairing(TARGET, slot), slot) for slot in range(first + 6, first - 1, -1))
    return next((one.source, slot) for one, slot in pairings if one and one.target == TARGET)


def worker(node: Node, port: int) -> psutil.Process:
    """The worker that listens on the fabric port."""

    def listening() -> psutil.Process | None:
        for process in psutil.Process(node.process.pid).children(recursive=True):
            with suppress(psutil.Error):
                ports = {c.laddr.port for c in process.net_connections() if c.status == "LISTEN"}
                if port in ports:
                    return process
        return None

    found: psutil.Process = wait_until(listening)
    return found


def status_bytes(process: psutil.Process, field: str) -> int:
    """A size of /proc/PID/status."""
    lines = Path(f"/proc/{process.pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(f"{field}:"))


def any_exposes(made: Loopback, family: str, **labels: str) -> bool:
    """Whether any node has a sample with these labels."""
    return any(node.value(family, **labels) is not None for node in made.nodes.values())


def test_impossible_names_are_failures_of_their_pairs(tmp_path: Path) -> None:
    """The worker lives, and the other pairs are tested."""
    with Loopback(tmp_path, 2) as made:
        made.settings = {
            "slot": "750ms",
            "tests": [{**TEST, "timeout": "250ms"}],
            "static": [{"targets": [*made.addresses(), "a..b", "a" * 70]}],
        }
        for name, node in made.nodes.items():
            node.write(made.config(name))
        made.start()
        failure = "nodevitals_fabric_failure"
        for peer in ("a..b", "a" * 70):
            labels = {"peer": peer, "reason": "unreachable"}
            wait_until(partial(any_exposes, made, failure, **labels), 40, f"a failure with {peer}")
        runs = "nodevitals_fabric_runs_total"
        wait_until(
            lambda: sum(n.value(runs, outcome="ok") or 0 for n in made.nodes.values()) >= 1, 40
        )
        for node in made.nodes.values():
            assert node.value("nodevitals_probe_success", probe="fabric") == 1
            assert "probe fabric" not in node.log()


def test_large_heads_cost_little(target: Loopback) -> None:
    """120 connections with 6 MB of headers each took 200 MB; a worker has 256 MB."""
    port = FabricPort.of(target, TARGET, SOURCE)
    process = worker(target.nodes[TARGET], port.port)
    before = status_bytes(process, "VmHWM")
    header = b"X-Padding: " + b"x" * 60_000 + b"\r\n"
    statuses: list[int] = []

    def send() -> None:
        with suppress(OSError, HTTPException), port.connect() as sock:
            with suppress(OSError):
                sock.sendall(f"POST {PATH} HTTP/1.1\r\n".encode())
                for _ in range(99):
                    sock.sendall(header)
            with HTTPResponse(sock) as response:
                response.begin()
                statuses.append(response.status)

    threads = [threading.Thread(target=send) for _ in range(120)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    grown = status_bytes(process, "VmHWM") - before
    print(f"the worker grew by {grown / 1e6:.1f} MB; {len(statuses)} responses")
    assert grown < 32e6
    assert set(statuses) <= {431}
    assert port.request("DELETE", f"{PATH}/x")[0] == 200
    assert worker(target.nodes[TARGET], port.port).pid == process.pid


def test_silent_clients_do_not_keep_a_peer_out(target: Loopback) -> None:
    """More connections than the limit, none of which completes a request."""
    port = FabricPort.of(target, TARGET, SOURCE)
    silent = [socket.create_connection((port.host, port.port), 20) for _ in range(200)]
    process = worker(target.nodes[TARGET], port.port)
    try:
        assert port.request("DELETE", f"{PATH}/x")[0] == 200
        wait_until(lambda: process.num_threads() <= MAX_THREADS)
    finally:
        for sock in silent:
            sock.close()


def test_source_is_the_owner_of_the_certificate(target: Loopback) -> None:
    """The token alone opens nothing, and no node opens a test as another one."""
    source, slot = planned(target)
    other = OTHER if source == SOURCE else SOURCE
    fields = {"id": "x", "source": source, "slot": slot, "test": TEST_KEY}
    status, body = FabricPort.of(target, TARGET, other).open(**fields)
    assert (status, body["text"]) == (
        403,
        "403 Forbidden: the client's certificate is not that of the source\n",
    )
    stranger = target.folder / "stranger"
    stranger.mkdir()
    certificate = trustme.CA().issue_cert(source)
    certificate.private_key_and_cert_chain_pem.write_to_path(str(stranger / "cert.pem"))
    certificate.private_key_pem.write_to_path(str(stranger / "key.pem"))
    for client in (None, "stranger"):
        with pytest.raises((ssl.SSLError, ConnectionError)):
            FabricPort.of(target, TARGET, client).open(**fields)
    assert target.nodes[TARGET].value(BYTES) == 0
    wait_until(lambda: FabricPort.of(target, TARGET, source).open(**fields)[0] == 200)


def test_second_opening_is_refused_and_costs_nothing(target: Loopback) -> None:
    """201 of them in 8 s were charged 754 MB."""
    source, slot = planned(target)
    port = FabricPort.of(target, TARGET, source)
    fields: dict[str, Any] = {"source": source, "slot": slot, "test": TEST_KEY}
    wait_until(lambda: port.open(id="first", **fields)[0] == 200)
    port.request("DELETE", f"{PATH}/first")
    again = [port.open(id=f"again-{number}", **fields) for number in range(ATTEMPTS)]
    assert [status for status, _ in again] == [409] * ATTEMPTS
    assert {body["refusal"] for _, body in again} == {"busy"}
    assert again[-1][1]["reason"] == "repeated"
    node = target.nodes[TARGET]
    wait_until(lambda: (node.value(BYTES) or 0) >= TEST_BYTES)

    def runs() -> float:
        return node.value("nodevitals_probe_runs_total", probe="fabric", outcome="ok") or 0.0

    before = runs()
    wait_until(lambda: runs() >= before + 3)  # they would report further costs
    assert node.value(BYTES) == TEST_BYTES


def test_lost_response_is_repeated(target: Loopback) -> None:
    """The same identity gets the same response, while the test runs and after its end."""
    source, slot = planned(target)
    port = FabricPort.of(target, TARGET, source)
    fields = {"id": "one", "source": source, "slot": slot, "test": TEST_KEY}
    wait_until(lambda: port.open(**fields)[0] == 200)
    first = port.open(**fields)
    port.request("DELETE", f"{PATH}/one")
    assert port.open(**fields) == first


def test_number_of_any_size_gets_a_response(target: Loopback) -> None:
    port = FabricPort.of(target, TARGET, SOURCE)
    for slot in ("1" + "0" * 400, "-1", "1e400", '"x"', "null", "[" * 2000 + "]" * 2000):
        body = f'{{"id": "x", "source": "{SOURCE}", "slot": {slot}, "test": "{TEST_KEY}"}}'
        status, text = port.request("POST", PATH, body.encode())
        assert status == 400
        assert "slot" in text or "nested" in text
    assert "Traceback" not in target.nodes[TARGET].log()
