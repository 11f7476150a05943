"""What the HTTP server limits: connections, threads, descriptors, waiting passwords and reloads."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path

import psutil
import pytest
import requests

from nodevitals.exposition import Variant
from nodevitals.web.access import load
from nodevitals.web.page import Overview
from nodevitals.web.server import Server
from testbed.guesses import ask, ask_and_leave, response_to, status_of, write_users
from testbed.node import Node, wait_until

CONFIG = {"probes": {"misbehave": {"behaviours": ["healthy"], "series": 200}}}


def connect(port: int) -> socket.socket:
    return socket.create_connection(("127.0.0.1", port), timeout=60)


class IdleAgent:
    """An agent without probes. Scrapes and reloads wait for `go`."""

    def __init__(self) -> None:
        self.go = threading.Event()

    def scrape(self, variant: Variant) -> bytes:
        assert self.go.wait(60)
        return b""

    def probe_names(self) -> frozenset[str]:
        return frozenset()

    def health(self) -> str:
        return ""

    def readiness(self) -> str:
        return ""

    def overview(self) -> Overview:
        return Overview("node", "1", 0.0, 0.0, (), "", ())

    def reload(self) -> str:
        assert self.go.wait(60)
        return ""


@contextmanager
def serving(agent: IdleAgent) -> Iterator[Server]:
    """Run a server in this process."""
    server = Server("127.0.0.1:0", agent, load(None), lifecycle=True)
    stack_bytes = threading.stack_size()
    thread = server.start()
    threading.stack_size(stack_bytes)
    try:
        yield server
    finally:
        agent.go.set()
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.fixture
def impatient_server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    """Return a server in this process whose deadline for a request's head is one second."""
    monkeypatch.setattr("nodevitals.connections.HEAD_SECONDS", 1.0)
    with serving(IdleAgent()) as server:
        yield server


def test_slow_request_head_is_cut_at_its_deadline(impatient_server: Server) -> None:
    """The deadline is for the whole head; further bytes do not extend it."""
    started = time.monotonic()
    cut = pytest.raises(OSError, match=r"reset|pipe")
    with closing(connect(impatient_server.server_port)) as sock, cut:
        while time.monotonic() - started < 60:
            sock.sendall(b"G")
            time.sleep(0.1)
    assert time.monotonic() - started >= 1
    assert impatient_server.evicted == {"cap": 0, "deadline": 1}


def test_connection_counts_until_its_thread_has_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    """Threads that do not notice that their connection was cut keep new ones out."""
    limit, clients = 8, 30
    monkeypatch.setattr("nodevitals.connections.CappedServer.max_connections", limit)
    monkeypatch.setattr("nodevitals.connections.ROOM_SECONDS", 0.01)
    agent, threads = IdleAgent(), threading.active_count()
    with serving(agent) as server, ExitStack() as held:
        for _ in range(clients):
            sock = connect(server.server_port)
            held.enter_context(closing(sock)).sendall(b"GET /metrics HTTP/1.1\r\n\r\n")
        # Each of the first is cut for one that is then refused.
        wait_until(lambda: server.evicted["cap"] == clients)
        assert threading.active_count() == threads + 1 + limit
        agent.go.set()
        wait_until(lambda: threading.active_count() == threads + 1)
        url = f"http://127.0.0.1:{server.server_port}/metrics"
        assert requests.get(url, timeout=60).status_code == 200


def test_few_requests_wait_for_a_reload() -> None:
    agent = IdleAgent()
    with serving(agent) as server, ThreadPoolExecutor(9) as pool:
        url = f"http://127.0.0.1:{server.server_port}/-/reload"
        waiting = {pool.submit(requests.post, url, timeout=60) for _ in range(9)}
        first, waiting = wait(waiting, 60, FIRST_COMPLETED)
        refused = [future.result() for future in first]
        assert [response.status_code for response in refused] == [503]
        assert refused[0].headers["Retry-After"] == "1"
        agent.go.set()
        assert [future.result().status_code for future in waiting] == [200] * 8
        assert requests.post(url, timeout=60).status_code == 200


class RenderingAgent(IdleAgent):
    """Counts the pages that are made at once."""

    def __init__(self) -> None:
        super().__init__()
        self.running = self.most = 0

    def overview(self) -> Overview:
        self.running += 1
        self.most = max(self.most, self.running)
        time.sleep(0.05)
        self.running -= 1
        return super().overview()


def test_one_page_is_rendered_at_a_time() -> None:
    """A page of a thousand targets takes 10 ms of the processor: of clients in a loop, all but one
    wait, and scrapes are answered.
    """
    agent = RenderingAgent()
    with serving(agent) as server, ThreadPoolExecutor(8) as pool:
        url = f"http://127.0.0.1:{server.server_port}/"
        pages = [pool.submit(requests.get, url, timeout=60) for _ in range(8)]
        assert {page.result().status_code for page in pages} == {200}
    assert agent.most == 1


def limit_descriptors(node: Node, most: int) -> None:
    """Limit an agent's descriptors; those above the limit that are open stay so."""
    psutil.Process(node.process.pid).rlimit(psutil.RLIMIT_NOFILE, (most, 20_000))


def test_guesses_of_passwords_neither_end_the_agent_nor_delay_scrapes(tmp_path: Path) -> None:
    """With 256 descriptors: 1,600 guesses of clients that hang up at once, and 60 of clients that
    wait. `guesses` in tests/bench has the long form.
    """
    web_config = tmp_path / "web.yaml"
    write_users(web_config, 12, prometheus="right", other="right")
    with Node(tmp_path, CONFIG, f"--web.config.file={web_config}") as node:
        process = psutil.Process(node.process.pid)
        limit_descriptors(node, 256)
        node.session.auth = ("prometheus", "right")
        wait_until(lambda: node.get("/metrics").status_code == 200)
        before = process.num_threads(), process.num_fds()
        threads, statuses = [], []
        patient = [ask(node.port, "prometheus", f"guess {number}") for number in range(60)]
        for number in range(1600):
            ask_and_leave(node.port, "prometheus", f"guess {number}")
            if number % 80 == 0:
                threads.append(process.num_threads())
                statuses.append(status_of(response_to(ask(node.port, "prometheus", "right"))))
        # A password that is not verified yet, from an address that does not guess.
        unverified = ask(node.port, "other", "right", "127.0.0.2")
        statuses.append(status_of(response_to(unverified)))
        assert max(threads) < 200
        assert statuses == ["200"] * len(statuses)
        responses = [response_to(sock) for sock in patient]
        assert {status_of(response) for response in responses} <= {"401", "503"}
        busy = [response for response in responses if status_of(response) == "503"]
        assert busy
        assert all(b"\r\nRetry-After: 1\r\n" in response for response in busy)
        wait_until(lambda: process.num_threads() <= before[0])
        wait_until(lambda: process.num_fds() <= before[1] + 8)  # the worker of a run


def test_agent_without_free_descriptors_goes_on(tmp_path: Path) -> None:
    """It serves its open connections; what cannot be read is missing, and back afterwards."""
    resident = "process_resident_memory_bytes"
    with Node(tmp_path, CONFIG) as node:
        wait_until(lambda: node.value(resident))
        limit_descriptors(node, 3)
        node.hang_up()  # exposes the agent's own families at once, and cannot open the file
        wait_until(lambda: node.value("nodevitals_config_last_reload_successful") == 0)
        assert node.value(resident) is None
        with closing(connect(node.port)) as sock:  # the kernel accepts it, the agent cannot
            sock.sendall(b"GET /healthz HTTP/1.1\r\nConnection: close\r\n\r\n")
            evicted = psutil.Process(node.process.pid)
            wait_until(lambda: len(evicted.net_connections()) == 1)  # none but the listener
            limit_descriptors(node, 1024)
            assert sock.recv(65536).startswith(b"HTTP/1.1 200 ")
        node.hang_up()
        wait_until(lambda: node.value("nodevitals_config_last_reload_successful") == 1)
        assert node.value(resident)


def test_connections_leave_a_descriptor_for_the_next_client(tmp_path: Path) -> None:
    """Where the limit of descriptors is reached before that of connections."""
    with Node(tmp_path, CONFIG) as node, ExitStack() as held:
        wait_until(lambda: node.get("/readyz").status_code == 200)
        limit_descriptors(node, psutil.Process(node.process.pid).num_fds() + 20)
        for _ in range(100):
            held.enter_context(closing(connect(node.port)))
        for _ in range(3):
            assert requests.get(node.url + "/metrics", timeout=60).status_code == 200
        node.hang_up()  # exposes the agent's own families at once
        evicted = "nodevitals_web_connections_evicted_total"
        wait_until(lambda: (node.value(evicted, reason="cap") or 0) > 0)


def test_reload_keeps_verified_passwords(tmp_path: Path) -> None:
    """The agent logs each of its computations here; one per password, reloads or not."""
    web_config = tmp_path / "web.yaml"
    write_users(web_config, 4, prometheus="right")
    node = Node(tmp_path, CONFIG, f"--web.config.file={web_config}")
    node.prelude = (
        "import bcrypt, sys; check = bcrypt.checkpw; bcrypt.checkpw = lambda password, hashed: "
        "(print('checks', password, file=sys.stderr, flush=True), check(password, hashed))[1]"
    )
    node.session.auth = ("prometheus", "right")
    with node:
        for reloads in range(3):
            assert node.get("/metrics").status_code == 200
            assert node.log().count("checks b'right'") == 1
            node.hang_up()
            wait_until(lambda: node.log().count("reload: done") == reloads + 1)  # noqa: B023
        write_users(web_config, 4, prometheus="new")
        node.hang_up()
        wait_until(lambda: node.get("/metrics").status_code == 401)
