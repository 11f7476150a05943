"""Agents that test each other: a network namespace each, a switch between them, real tools.

Each node has two links: `eth0` for scrapes, and `fab0`, a port of the switch, for the fabric.
"""

from __future__ import annotations

import os
import socket
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import trustme

from nodevitals.quantities import parse_duration
from testbed.namespaces import Namespace, Network, ip
from testbed.node import ROOT, Node, wait_until
from testbed.ordering import HUB_NAME, HUB_TOKEN, OrderClient

TOKEN = "a token of the test bed's"
AGENT_PORT = 9855
FABRIC_PORT = 9856
HUB_ADDRESS = "10.98.0.254"
DEBIAN = ROOT / ".tools/root"
# Debian's iperf3 and perftest are unpacked there, with their libraries.
REAL_TOOLS = {
    "PATH": f"{DEBIAN}/usr/bin:{os.environ['PATH']}",
    "LD_LIBRARY_PATH": ":".join(
        str(folder) for name in ("usr/lib", "lib") for folder in DEBIAN.glob(f"{name}/*-linux-gnu")
    ),
}
IPERF3 = {"tool": "iperf3", "operation": "tcp", "device": "fab0", "iterations": 16}


class FabricNode(Node):
    """An agent in a namespace."""

    def __init__(self, folder: Path, space: Namespace, config: dict[str, Any], **more: str) -> None:
        super().__init__(folder, config, f"--path.sysfs={folder / 'sys'}", **more)
        self.space = space
        self.port = AGENT_PORT
        self.url = f"http://{space.address}:{AGENT_PORT}"

    def command(self) -> list[str]:
        """The command, run inside the namespace."""
        listen = f"--web.listen-address=:{AGENT_PORT}"
        return ["nsenter", f"--net=/run/netns/{self.space.name}", *super().command(), listen]

    def _accepts(self) -> bool:
        assert self.process.poll() is None, self.log()
        with socket.socket() as sock:
            sock.settimeout(1)
            return sock.connect_ex((self.space.address, AGENT_PORT)) == 0


class Fabric:
    """Nodes `node-1` … `node-N` at a switch, each with the same configuration."""

    link = "fab0"
    """The node's end of its link to the switch."""

    def __init__(
        self, folder: Path, count: int, hub: dict[str, Any] | None = None, **settings: Any
    ) -> None:
        """With `hub`, tests may be ordered, and these are further settings of that section."""
        self.folder = folder
        self.hub = hub
        self.names = [f"node-{number}" for number in range(1, count + 1)]
        self.addresses = {name: f"10.98.0.{n}" for n, name in enumerate(self.names, 1)}
        self.nodes: dict[str, FabricNode] = {}
        self.spaces: dict[str, Namespace] = {}
        self.ports: dict[str, str] = {}
        self.settings = settings
        self.switch = f"nvs{os.getpid() % 100000}"

    def __enter__(self) -> Fabric:
        with ExitStack() as stack:
            self._set_up(stack)
            self._stack = stack.pop_all()
        return self

    def _set_up(self, stack: ExitStack) -> None:
        network = stack.enter_context(Network())
        ip("link", "add", self.switch, "type", "bridge")
        stack.callback(self._unplug)
        ip("link", "set", self.switch, "up")
        ip("addr", "add", f"{HUB_ADDRESS}/24", "dev", self.switch)
        authority = trustme.CA()
        authority.cert_pem.write_to_path(str(self.folder / "ca.pem"))
        (self.folder / "token").write_text(TOKEN + "\n")
        (self.folder / "hub-token").write_text(HUB_TOKEN + "\n")
        (self.folder / "hub").mkdir()
        issue(self.folder / "hub", authority, HUB_NAME)
        for name in self.names:
            self.spaces[name] = network.add(name)
            self._plug(name)
        for name in self.names:
            self._add(name, authority)

    def __exit__(self, *_: object) -> None:
        with ThreadPoolExecutor(2) as threads:
            list(threads.map(_end, self.nodes.values()))
        self._stack.close()

    def start(self) -> None:
        """Start every agent, then let all of them take part at once, late in a slot: a peer that
        has not started yet cannot be reached.
        """
        with ThreadPoolExecutor(2) as threads:
            list(threads.map(FabricNode.start, self.nodes.values()))
        slot = parse_duration(self.settings["slot"])
        wait_until(lambda: time.time() % slot > 0.8 * slot, 2 * slot)
        for name, node in self.nodes.items():
            node.write(self.config(name))
            node.hang_up()

    def cut(self, name: str) -> None:
        """Take the node's port of the switch down; scrapes still reach the node."""
        ip("link", "set", self.ports[name], "down")

    def throttle(self, name: str, rate: str) -> None:
        """Limit the rate of the node's link, in both directions."""
        limit = ("root", "tbf", "rate", rate, "burst", "64kb", "latency", "200ms")
        add = ("tc", "qdisc", "add", "dev")
        subprocess.run([*add, self.ports[name], *limit], check=True)
        inside = ["ip", "netns", "exec", self.spaces[name].name]
        subprocess.run([*inside, *add, "fab0", *limit], check=True)

    def client(self, name: str, folder: str = "hub", token: str = HUB_TOKEN) -> OrderClient:
        """A client of this node's fabric port, as the hub or with the certificate of a node."""
        authority = self.folder / "ca.pem"
        address = self.addresses[name]
        return OrderClient(address, FABRIC_PORT, authority, self.folder / folder, token)

    def config(self, name: str) -> dict[str, Any]:
        """Return a node's configuration."""
        folder = self.folder / name
        files = {"cert_file": f"{folder}/cert.pem", "key_file": f"{folder}/key.pem"}
        fabric = {
            "enabled": True,
            "name": self.addresses[name],
            "listen_address": f"{self.addresses[name]}:{FABRIC_PORT}",
            "static": [{"targets": list(self.addresses.values())}],
            "token_file": str(self.folder / "token"),
            "tls": {**files, "ca_file": str(self.folder / "ca.pem")},
            "interval": "1s",
            "timeout": "1s",
            "tests": [{**IPERF3, "timeout": "4s"}],
            "gate": {"require_idle": False},
            "budget": {"seconds_per_hour": 3600},
            **self.settings,
        }
        if self.hub is not None:
            token_file = str(self.folder / "hub-token")
            fabric["hub"] = {"token_file": token_file, "names": [HUB_NAME], **self.hub}
        others = {probe: {"enabled": False} for probe in ("node", "mounts", "peers")}
        return {"probes": {**others, "fabric": fabric}}

    def _add(self, name: str, authority: trustme.CA) -> None:
        folder = self.folder / name
        (folder / "sys/class/net/fab0").mkdir(parents=True)
        (folder / "sys/class/net/fab0/ifindex").write_text("2\n")
        issue(folder, authority, self.addresses[name], name)
        config = self.config(name)
        config["probes"]["fabric"]["enabled"] = False
        self.nodes[name] = FabricNode(folder, self.spaces[name], config, **REAL_TOOLS)

    def _plug(self, name: str) -> None:
        space = self.spaces[name]
        port = self.ports[name] = f"{self.switch}.{len(self.ports)}"
        pair = ("type", "veth", "peer", "name", self.link, "netns", space.name)
        ip("link", "add", port, *pair)
        ip("link", "set", port, "master", self.switch, "up")
        space.ip("addr", "add", f"{self.addresses[name]}/24", "dev", self.link)
        space.ip("link", "set", self.link, "up")
        space.sysctl(
            f"net.ipv4.neigh.{self.link}.retrans_time_ms", "100"
        )  # a dead peer fails sooner
        space.ip("link", "set", "lo", "up")

    def _unplug(self) -> None:
        for link in (*self.ports.values(), self.switch):
            with suppress(subprocess.CalledProcessError):
                ip("link", "del", link)


def issue(folder: Path, authority: trustme.CA, *names: str) -> None:
    """Write a certificate in these names, and its key, into a folder."""
    certificate = authority.issue_cert(*names)
    certificate.private_key_pem.write_to_path(str(folder / "key.pem"))
    for number, blob in enumerate(certificate.cert_chain_pems):
        blob.write_to_path(str(folder / "cert.pem"), append=number > 0)


def _end(node: FabricNode) -> None:
    with suppress(AttributeError):  # it was not started
        node.__exit__()
