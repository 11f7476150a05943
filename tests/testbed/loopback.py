"""Agents on one machine that test each other with simulated perftest. Each has an address of the
loopback interface, and a proxy before it that can lose connections.
"""

from __future__ import annotations

import os
import random
import select
import socket
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
import trustme

from testbed import perftools, programs
from testbed.node import ROOT, Node, free_port

TOKEN = "a token of the test bed's"
DEVICE = "mlx5_0"
TEST = {"tool": "perftest", "operation": "write_bw", "device": DEVICE, "message_bytes": 65536}
PORTS_EACH = 10
FIRST_PORT = 17_000


class Proxy:
    """Forwards connections to a port; a share of them loses the request, the response, or both."""

    def __init__(self, address: str, port: int) -> None:
        self.address, self.port = address, port
        self.lost_share = 0.0
        self._server = socket.create_server((address, 0), backlog=64)
        self.number = self._server.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        """Accept no further connections."""
        with suppress(OSError):
            self._server.shutdown(socket.SHUT_RDWR)
        self._server.close()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._server.accept()
            except OSError:
                return
            threading.Thread(target=self._forward, args=(connection,), daemon=True).start()

    def _forward(self, connection: socket.socket) -> None:
        lost = random.random() < self.lost_share
        after = random.choice((0, 600, 2500)) if lost else 1 << 30  # bytes of the response
        with connection, suppress(OSError):
            other = socket.create_connection((self.address, self.port), 5)
            with other:
                pairs = {connection: other, other: connection}
                while True:
                    for one in select.select(list(pairs), [], [], 30)[0]:
                        data = one.recv(65536)
                        after -= len(data) if one is other else 0
                        if not data or after <= 0:
                            return
                        pairs[one].sendall(data)


class Loopback:
    """Agents `127.0.0.2` and so on. A slot is three times the tests' timeout, its minimum."""

    def __init__(self, folder: Path, count: int, **settings: Any) -> None:
        self.folder = folder
        self.names = [f"127.0.0.{number}" for number in range(2, count + 2)]
        self.settings = settings
        self.nodes: dict[str, Node] = {}
        self.proxies: dict[str, Proxy] = {}
        self.tools = programs.install(folder / "bin", "perftools", perftools.PROGRAMS)

    def __enter__(self) -> Loopback:
        self.authority = trustme.CA()
        self.authority.cert_pem.write_to_path(str(self.folder / "ca.pem"))
        for name in self.names:
            self.proxies[name] = Proxy(name, free_port())
        for name in self.names:
            self._add(name)
        return self

    def __exit__(self, *_: object) -> None:
        with ThreadPoolExecutor() as threads:
            list(threads.map(_end, self.nodes.values()))
        for proxy in self.proxies.values():
            proxy.close()

    def start(self) -> None:
        """Start every agent."""
        with ThreadPoolExecutor() as threads:
            list(threads.map(Node.start, self.nodes.values()))

    def config(self, name: str, **settings: Any) -> dict[str, Any]:
        """Return an agent's configuration."""
        folder = self.folder / name
        files = {"cert_file": f"{folder}/cert.pem", "key_file": f"{folder}/key.pem"}
        first = self.first_port(name)
        fabric = {
            "enabled": True,
            "name": name,
            "listen_address": f"{name}:{self.proxies[name].port}",
            "static": [{"targets": self.addresses()}],
            "token_file": str(folder / "token"),
            "tls": {**files, "ca_file": str(self.folder / "ca.pem")},
            "interval": "300ms",
            "timeout": "300ms",
            "slot": "1500ms",
            "tests": [{**TEST, "timeout": "500ms"}],
            "tool_ports": [first, first + PORTS_EACH - 1],
            "budget": {"seconds_per_hour": 3600, "bytes_per_hour": 10**15},
            **self.settings,
            **settings,
        }
        others = {probe: {"enabled": False} for probe in ("node", "mounts", "peers")}
        return {"probes": {**others, "fabric": fabric}}

    def addresses(self) -> list[str]:
        """The addresses of all proxies."""
        return [f"{name}:{proxy.number}" for name, proxy in self.proxies.items()]

    def first_port(self, name: str) -> int:
        """The first of the ports that an agent's tools may use."""
        return FIRST_PORT + self.names.index(name) * PORTS_EACH

    def issue(self, name: str) -> None:
        """Write a certificate of the cluster's authority for this name, in a folder of its own."""
        folder = self.folder / name
        folder.mkdir(exist_ok=True)
        certificate = self.authority.issue_cert(name)
        certificate.private_key_pem.write_to_path(str(folder / "key.pem"))
        for number, blob in enumerate(certificate.cert_chain_pems):
            blob.write_to_path(str(folder / "cert.pem"), append=number > 0)

    def tool_processes(self) -> list[psutil.Process]:
        """All running tools."""
        return [
            process
            for process in psutil.process_iter()
            if any(str(self.tools) in word for word in _command(process))
        ]

    def tool_ports_taken(self) -> list[int]:
        """Ports of the tools on which any process listens."""
        last = FIRST_PORT + len(self.names) * PORTS_EACH
        taken = []
        for port in range(FIRST_PORT, last):
            with socket.socket() as sock:
                if sock.connect_ex(("127.0.0.1", port)) == 0:
                    taken.append(port)
        return taken

    def _add(self, name: str) -> None:
        folder = self.folder / name
        (folder / "proc/1/fd").mkdir(parents=True)
        (folder / "proc/2").mkdir()
        (folder / "proc/2/stat").write_text("2 (kthreadd) S 0 0 0 0 -1\n")
        (folder / "sys").mkdir()
        (folder / "token").write_text(TOKEN + "\n")
        self.issue(name)
        self.nodes[name] = Node(
            folder,
            self.config(name),
            f"--path.procfs={folder / 'proc'}",
            f"--path.sysfs={folder / 'sys'}",
            PATH=f"{self.tools}:{os.environ['PATH']}",
            PYTHONPATH=f"{ROOT / 'exporter'}:{ROOT / 'tests/testbed/skew'}",
            FAKE_DEVICE=f"{DEVICE}:1:",
        )


def _end(node: Node) -> None:
    with suppress(AttributeError):  # it was not started
        node.__exit__()


def _command(process: psutil.Process) -> list[str]:
    try:
        return process.cmdline()
    except psutil.Error:
        return []
