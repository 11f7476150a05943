"""The hub reads /metrics of agents that have TLS and passwords."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import bcrypt
import msgspec
import pytest
import trustme
import yaml

from nodevitals import __version__
from nodevitals.errors import ProbeError
from nodevitals_hub.checks.check_requests import Member
from nodevitals_hub.launch.node_checks import Facts, Nodes
from nodevitals_hub.settings.agents import AgentsSettings
from testbed.hub import HubProcess
from testbed.node import Node

CONFIG: dict[str, Any] = {"probes": {"node": {"interval": "1s"}}}


class Agent(Node):
    """An agent whose web server asks for a password and for a certificate, and the settings of a
    hub for it. Its certificate is of another authority than that of the fabric.
    """

    def __init__(self, folder: Path) -> None:
        web, fabric = trustme.CA(), trustme.CA()
        web.cert_pem.write_to_path(str(folder / "web-ca.pem"))
        fabric.cert_pem.write_to_path(str(folder / "fabric-ca.pem"))
        for name, authority, subject in (
            ("agent", web, "127.0.0.1"),
            ("hub", web, "hub.test"),
            ("fabric", fabric, "hub.test"),
        ):
            issued = authority.issue_cert(subject)
            issued.private_key_and_cert_chain_pem.write_to_path(str(folder / f"{name}.pem"))
        (folder / "token").write_text("a token of sixteen characters\n")
        self.password = folder / "password"
        self.password.write_text("right\n")
        tls = {"cert_file": "agent.pem", "key_file": "agent.pem", "client_ca_file": "web-ca.pem"}
        tls["client_auth_type"] = "RequireAndVerifyClientCert"
        users = {"hub": bcrypt.hashpw(b"right", bcrypt.gensalt(4)).decode()}
        file = folder / "web.yaml"
        file.write_text(yaml.safe_dump({"tls_server_config": tls, "basic_auth_users": users}))
        super().__init__(folder, CONFIG, f"--web.config.file={file}")

    def agents(self, **more: Any) -> dict[str, Any]:
        """The section `agents`."""
        own, hub = str(self.folder / "fabric.pem"), str(self.folder / "hub.pem")
        authority = str(self.folder / "fabric-ca.pem")
        tls = {"ca_file": str(self.folder / "web-ca.pem"), "cert_file": hub, "key_file": hub}
        return {
            "token_file": str(self.folder / "token"),
            "tls": {"cert_file": own, "key_file": own, "ca_file": authority},
            "metrics_port": self.port,
            "metrics_scheme": "https",
            "metrics_tls_config": {**tls, **more},
            "metrics_basic_auth": {"username": "hub", "password_file": str(self.password)},
        }

    def nodes(self, **more: Any) -> Nodes:
        """What a hub with these settings asks."""
        return Nodes(msgspec.convert(self.agents(**more), AgentsSettings))


@pytest.fixture(scope="module")
def agent(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Agent]:
    made = Agent(tmp_path_factory.mktemp("agent"))
    with made:
        yield made


@pytest.fixture(autouse=True)
def right_password(agent: Agent) -> None:
    agent.password.write_text("right\n")


def ask(nodes: Nodes, host: str = "127.0.0.1") -> Facts:
    """The facts of the node with this address."""

    async def facts() -> Facts:
        found = await nodes.facts([Member(name="gpu-1", host=host, port=9856)])
        await nodes.close()
        return found["gpu-1"]

    return asyncio.run(facts())


def test_a_check_of_a_node_whose_agent_asks_for_a_certificate_and_a_password(
    agent: Agent, tmp_path: Path
) -> None:
    static = [{"targets": ["127.0.0.1"]}]
    with HubProcess(tmp_path, agents=agent.agents(), nodes={"static": static}) as hub:
        check = hub.submit(kind="node", nodes=["127.0.0.1"])
        detail = hub.ended(check.id)
    assert detail.check.verdict is not None
    assert detail.check.verdict.outcome == "ok", detail
    assert detail.results[0].versions == {"nodevitals": __version__}


def test_the_password_is_read_again_when_its_file_changes(agent: Agent) -> None:
    agent.password.write_text("wrong\n")
    nodes = agent.nodes()
    refused = "/metrics: HTTP 401: the login is wrong (agents.metrics_basic_auth)"
    assert ask(nodes).problem == refused
    agent.password.write_text("right")

    async def again() -> Facts:
        await nodes.refresh()
        other = Member(name="of-which-nothing-is-known", host="127.0.0.1", port=9856)
        return (await nodes.facts([other]))[other.name]

    assert asyncio.run(again()).version == __version__


def test_the_authority_is_by_default_that_of_the_fabric(agent: Agent) -> None:
    assert "CERTIFICATE_VERIFY_FAILED" in ask(agent.nodes(ca_file=None)).problem
    nodes = agent.nodes(ca_file=None, insecure_skip_verify=True)
    assert ask(nodes).version == __version__


def test_the_name_in_the_certificate_is_the_nodes_or_the_one_that_is_set(agent: Agent) -> None:
    assert "not valid for 'gpu-1'" in ask(agent.nodes(server_name="gpu-1")).problem
    assert "not valid for 'localhost'" in ask(agent.nodes(), "localhost").problem
    assert ask(agent.nodes(server_name="127.0.0.1"), "localhost").version == __version__


@pytest.mark.parametrize("file", ["password", "web-ca.pem", "hub.pem"])
def test_a_hub_does_not_start_without_its_files_and_keeps_those_that_it_has_read(
    agent: Agent, file: str
) -> None:
    path = agent.folder / file
    kept = path.read_bytes()
    nodes = agent.nodes()
    path.unlink()
    try:
        with pytest.raises(ProbeError, match=f"{file}: No such file"):
            agent.nodes()
        with pytest.raises(ProbeError, match=f"{file}: No such file"):
            asyncio.run(nodes.refresh())
        path.write_text("-----BEGIN nonsense")
        if file != "password":
            with pytest.raises(ProbeError, match=file):
                agent.nodes()
        assert ask(nodes).version == __version__
    finally:
        path.write_bytes(kept)


def test_a_certificate_without_its_key_is_named(agent: Agent) -> None:
    settings = msgspec.convert(agent.agents(key_file=None), AgentsSettings)
    [problem] = settings.problems()
    assert problem.path == "agents.metrics_tls_config.key_file"
