"""Eight agents at a switch, a network namespace each, and a hub beside the switch.

Links are shaped and real iperf3 runs over them; one node's link is slow. The hub runs in the
network namespace of the test. Names are those of /etc/hosts, in the private mount namespace.
"""

from __future__ import annotations

import hashlib
import json
import os
import socket
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Self

import requests
import trustme
import yaml

from testbed.fabric import REAL_TOOLS, Fabric, FabricNode, issue
from testbed.node import environment, free_port, wait_until

TOKENS = {"viewer": "read", "operator": "run", "admin": "act"}
LINK_RATE, SLOW_RATE = "200mbit", "80mbit"
# 16 MB: 0.7 s at the rate of a link.
TEST = {
    "tool": "iperf3",
    "operation": "tcp",
    "device": "fab0",
    "sizes": "128KiB",
    "iterations": 128,
}


class HubFabric(Fabric):
    """Agents `gpu-1` … that take orders of the hub; they have no plan of their own."""

    rate = LINK_RATE

    def __init__(self, folder: Path, count: int = 8) -> None:
        super().__init__(folder, count, hub={}, tests=[])
        self.names = [f"gpu-{number}" for number in range(1, count + 1)]
        self.addresses = {name: f"10.98.0.{n}" for n, name in enumerate(self.names, 1)}

    def __enter__(self) -> Self:
        super().__enter__()
        self._name_nodes()
        for name in self.names:
            self.throttle(name, self.rate)
        return self

    def start(self) -> None:
        """Start every agent."""
        with ThreadPoolExecutor(2) as threads:
            list(threads.map(FabricNode.start, self.nodes.values()))

    def slow(self, name: str, rate: str = SLOW_RATE) -> None:
        """Change the rate of a node's link."""
        limit = ("root", "tbf", "rate", rate, "burst", "64kb", "latency", "200ms")
        change = ("tc", "qdisc", "replace", "dev")
        subprocess.run([*change, self.ports[name], *limit], check=True)
        inside = ["ip", "netns", "exec", self.spaces[name].name]
        subprocess.run([*inside, *change, "fab0", *limit], check=True)

    def config(self, name: str) -> dict[str, Any]:
        """Return a node's configuration."""
        config = super().config(name)
        listed = {"name": name, "static": [{"targets": list(self.names)}]}
        config["probes"]["fabric"] |= {**listed, "enabled": True}
        return config

    def _add(self, name: str, authority: trustme.CA) -> None:
        folder = self.folder / name
        (folder / "sys/class/net/fab0").mkdir(parents=True)
        (folder / "sys/class/net/fab0/ifindex").write_text("2\n")
        issue(folder, authority, name)
        self.nodes[name] = FabricNode(folder, self.spaces[name], self.config(name), **REAL_TOOLS)

    def _name_nodes(self) -> None:
        """Names for addresses, for all processes of this mount namespace."""
        assert "PRIVATE_MOUNTS" in os.environ, "start it with tools/private-mounts"
        hosts = self.folder / "hosts"
        lines = [
            "127.0.0.1 localhost",
            *(f"{address} {n}" for n, address in self.addresses.items()),
        ]
        hosts.write_text("\n".join(lines) + "\n")
        subprocess.run(["mount", "--bind", hosts, "/etc/hosts"], check=True)
        self._stack.callback(subprocess.run, ["umount", "/etc/hosts"], check=True)


class HubProcess:
    """`nodevitals hub` on a loopback port; it runs inside the with block."""

    def __init__(self, folder: Path, config: dict[str, Any], *flags: str) -> None:
        self.folder = folder
        self.flags = flags
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.log_file = folder / "hub.log"
        self.config_file = folder / "hub.yaml"
        self.tokens = {name: f"token-of-{name}" for name in TOKENS}
        self.environment: dict[str, str] = {}
        (folder / "tokens.yaml").write_text(yaml.safe_dump(_tokens(self.tokens)))
        self.write(config)

    def write(self, config: dict[str, Any]) -> None:
        """Replace the configuration file."""
        state = {"state_directory": str(self.folder / "state"), "external_url": self.url}
        access = {"access": {"tokens_file": str(self.folder / "tokens.yaml")}}
        self.config_file.write_text(json.dumps({**state, **access, **config}))

    def __enter__(self) -> HubProcess:
        argv = [sys.executable, "-m", "nodevitals", "hub", f"--config.file={self.config_file}"]
        argv += [f"--web.listen-address=127.0.0.1:{self.port}", *self.flags]
        with self.log_file.open("ab") as log:
            self.process = subprocess.Popen(
                ["setpriv", "--pdeathsig", "KILL", "--", *argv],
                env=environment(**self.environment),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        wait_until(self._accepts, 30, f"no connection to {self.url}; log: {self.log_file}")
        return self

    def __exit__(self, *_: object) -> None:
        self.process.terminate()
        try:
            self.process.wait(120)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            raise

    def _accepts(self) -> bool:
        assert self.process.poll() is None, self.log()
        with socket.socket() as sock:
            return sock.connect_ex(("127.0.0.1", self.port)) == 0

    def log(self) -> str:
        """Everything the hub has logged."""
        return self.log_file.read_text()

    def token_file(self, name: str) -> Path:
        """A file with a token, for the command line."""
        path = self.folder / f"{name}.token"
        path.write_text(self.tokens[name] + "\n")
        return path

    def request(
        self, method: str, path: str, token: str | None = "operator", **more: Any
    ) -> requests.Response:
        """One request to the REST API."""
        headers = {"Authorization": f"Bearer {self.tokens[token]}"} if token else {}
        return requests.request(
            method,
            f"{self.url}{path}",
            headers={**headers, **more.pop("headers", {})},
            timeout=300,
            **more,
        )


class HubCluster:
    """The agents and the hub, running until the with block ends."""

    def __init__(self, folder: Path, count: int = 8, slow: str = "gpu-7", **hub: Any) -> None:
        self._folder = folder
        self._slow = slow
        self._settings = hub
        self.fabric = HubFabric(folder, count)

    def __enter__(self) -> HubCluster:
        with ExitStack() as stack:
            stack.enter_context(self.fabric)
            self.fabric.slow(self._slow)
            self.fabric.start()
            config = hub_config(self.fabric, **self._settings)
            self.hub = stack.enter_context(HubProcess(self._folder / "hub", config))
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()


def hub_config(fabric: HubFabric, **settings: Any) -> dict[str, Any]:
    """Two leaf switches on paper, one pool."""
    names, own = fabric.names, fabric.folder / "hub"
    half = len(names) // 2
    leaves = {"a": names[:half], "b": names[half:]}
    files = {"cert_file": str(own / "cert.pem"), "key_file": str(own / "key.pem")}
    return {
        "cluster": "demo",
        "nodes": {
            "static": [
                {"targets": targets, "labels": {"pool": "train", "leaf": leaf}}
                for leaf, targets in leaves.items()
            ]
        },
        "agents": {
            "token_file": str(fabric.folder / "hub-token"),
            "tls": {**files, "ca_file": str(fabric.folder / "ca.pem")},
        },
        "presets": {"links": {"kind": "matrix", "test": TEST}},
        **settings,
    }


def _tokens(tokens: dict[str, str]) -> list[dict[str, str]]:
    return [
        {"name": name, "role": TOKENS[name], "sha256": hashlib.sha256(token.encode()).hexdigest()}
        for name, token in tokens.items()
    ]
