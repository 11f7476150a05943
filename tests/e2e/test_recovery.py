"""sshd of a node is killed, and all that follows: the shipped rules report it, the hub asks the
other nodes, takes the node out of service, restarts sshd by the site's command, and returns it.

sshd, ssh, agents, Prometheus and the hub are real; the commands are those of a site.
"""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
import trustme

from nodevitals import probes
from testbed import sshd
from testbed.fabric import issue
from testbed.hubcluster import HubProcess
from testbed.node import Node, free_port, wait_until
from testbed.respond import Site
from testbed.servers import Prometheus
from testbed.sshd import Sshd

SPEED = 60.0
SECONDS = 120.0


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
    """Five nodes, each with sshd and an agent that logs in at the others; Prometheus; a hub."""

    def __init__(self, folder: Path, stack: ExitStack) -> None:
        self.folder, self.port = folder, free_port()
        self.names = [f"127.0.0.{number}" for number in range(11, 16)]
        self.servers: dict[str, Sshd] = {}
        self.key = sshd.make_key(folder / "key")
        for name in self.names:
            self.servers[name] = stack.enter_context(Sshd(folder / f"sshd-{name}", name))
            self.servers[name].authorize(self.key)
        lines = (server.known_host() for server in self.servers.values())
        (folder / "known_hosts").write_text("".join(lines))
        for name in self.names:
            (folder / name).mkdir()
            node = AddressedNode(folder / name, name, self.port, self._agent(name))
            stack.enter_context(node)
        targets = {name: f"{name}:{self.port}" for name in self.names}
        self.prometheus = stack.enter_context(Prometheus(folder, targets, None, SPEED))
        self.site = Site(folder, self.names)
        (folder / "hub").mkdir()
        self.hub = HubProcess(folder / "hub", {})
        self.hub.write(self._hub())
        stack.enter_context(self.hub)

    def _agent(self, name: str) -> dict[str, Any]:
        others = [{"host": one, "protocol": "ssh"} for one in self.names if one != name]
        files = {"key_file": f"{self.folder}/key", "known_hosts_file": f"{self.folder}/known_hosts"}
        peers: dict[str, Any] = {"interval": "4s", "timeout": "4s", "targets": others}
        peers["login"] = {"user": sshd.USER, **files, "per_run": 4, "timeout": "3s"}
        return {
            "probes": {**{one: {"enabled": False} for one in probes.registered()}, "peers": peers}
        }

    def _hub(self) -> dict[str, Any]:
        own, authority = self.hub.folder, trustme.CA()
        issue(own, authority, "hub.test")
        authority.cert_pem.write_to_path(str(own / "ca.pem"))
        (own / "token").write_text("a token of the test bed's hub\n")
        restart = self.folder / "restart-sshd"
        restart.write_text(
            f"#!/bin/sh\necho $1 $2 >> {self.folder}/restarts\nexec {self.folder}/sshd-$1/start\n"
        )
        restart.chmod(0o755)
        repair = {
            "name": "restart-sshd",
            "faults": ["peer_unreachable"],
            "command": [str(restart), "{node}", "{device_id}"],
            "when_empty": False,
            "dry_run": False,
        }
        tls = {name: f"{own}/{name.split('_')[0]}.pem" for name in ("cert_file", "key_file")}
        return {
            "nodes": {"static": [{"targets": self.names, "labels": {"pool": "train"}}]},
            "agents": {
                "token_file": f"{own}/token",
                "tls": {**tls, "ca_file": f"{own}/ca.pem"},
                "metrics_port": self.port,
            },
            "prometheus": {"url": self.prometheus.url},
            "out_of_service": {
                "scheduler": "command",
                "command": self.site.commands(),
                "where": [{"pool": "train"}],
                "dry_run": False,
                "grace": "2s",
                "every": "1s",
                "recovery": {"faults": ["peer_unreachable"], "observers": 3},
                "repairs": [repair],
                "back": {"enabled": True, "clean": "3s"},
                "limits": {"share": 0.5},
            },
        }

    def isolation(self, state: str) -> dict[str, Any]:
        """One in a state, once it is there."""

        def found() -> dict[str, Any] | None:
            listed = self.hub.request("GET", "/api/v1/isolations").json()
            every = (*listed["open"], *listed["ended"])
            return next((dict(one) for one in every if one["state"] == state), None)

        log = f"no isolation {state}; log: {self.hub.log_file}"
        got: dict[str, Any] = wait_until(found, SECONDS, log)
        return got


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    with ExitStack() as stack:
        yield Cluster(tmp_path, stack)


def test_sshd_is_killed_restarted_and_the_node_returns(cluster: Cluster) -> None:
    suspect, query = cluster.names[1], cluster.prometheus.query
    reached = "count(nodevitals_peer_reachable == 1) == 20"
    wait_until(lambda: query(reached), SECONDS, "every node logs in at each other one")
    cluster.servers[suspect].kill()
    returned = cluster.isolation("returned")
    texts = [step["text"] for step in returned["steps"]]
    assert returned["node"] == suspect
    order = [
        "to be taken out of service: peer_unreachable 22/ssh",
        f"confirmed: of 4 other nodes, 4 do not reach {suspect} (refused)",
        "out of service",
        f"repair restart-sshd: started: {cluster.folder}/restart-sshd {suspect} 22/ssh",
        "repair restart-sshd: succeeded: status 0",
        "returned to service",
    ]
    assert [text for text in texts if text in order] == order
    assert (cluster.folder / "restarts").read_text() == f"{suspect} 22/ssh\n"
    assert cluster.site.get(suspect) == "in service"
    assert cluster.site.log("isolate") == [suspect]
    assert query(reached)
