"""The certificates and tokens of docs/hub.md, made by its commands, between a hub and agents."""

from __future__ import annotations

import hashlib
import ssl
import subprocess
from pathlib import Path

import pytest

from bench.pagesteps import steps
from nodevitals.probes.fabric.secrets import HubToken, Secrets, has_name
from nodevitals.probes.fabric.settings import FabricTlsSettings
from nodevitals_hub.web.access import parse_tokens
from testbed.handshake import connect
from testbed.node import ROOT

PAGE = "docs/hub.md"
HUB, NODE = "hub.example.org", "gpu-1"


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder that the page's commands fill."""
    folder = tmp_path_factory.mktemp("machine")
    found = steps(PAGE, (ROOT / PAGE).read_text())
    [step] = [one for one in found if "openssl req" in one.commands]
    subprocess.run(["bash", "-euo", "pipefail", "-c", step.commands], cwd=folder, check=True)
    return folder / "secrets"


def files_of(folder: Path, name: str) -> dict[str, bytes]:
    files = {"tls.crt": f"{name}.crt", "tls.key": f"{name}.key", "ca.crt": "ca.crt"}
    return {own: (folder / file).read_bytes() for own, file in files.items()}


def test_hub_and_agents_accept_each_other(made: Path, tmp_path: Path) -> None:
    """In both directions, verified as our strictest readers do."""
    hub, node = files_of(made, HUB), files_of(made, NODE)
    assert has_name(connect(hub, node, tmp_path, NODE), [HUB])
    assert not has_name(connect(node, hub, tmp_path, HUB), [HUB])
    other = connect(files_of(made, "gpu-2"), node, tmp_path, NODE)
    assert has_name(other, ["gpu-2"])
    with pytest.raises(ssl.SSLCertVerificationError, match="Hostname mismatch"):
        connect(hub, node, tmp_path, "gpu-2")
    strict = ["openssl", "verify", "-x509_strict", "-CAfile", str(made / "ca.crt")]
    for name in ("ca", HUB, NODE):
        subprocess.run([*strict, str(made / f"{name}.crt")], check=True)


def test_tokens_are_good_for_what_the_page_says(made: Path) -> None:
    pair = {"cert_file": str(made / f"{NODE}.crt"), "key_file": str(made / f"{NODE}.key")}
    tls = FabricTlsSettings(**pair, ca_file=str(made / "ca.crt"))
    agent = Secrets(str(made / "fabric-token"), tls)
    hub = HubToken(str(made / "hub-token"), agent)
    assert hub.token != agent.token
    [token] = parse_tokens((made / "hub-tokens.yaml").read_bytes())
    sent = (made / "ci-token").read_text().strip()
    assert (token.name, token.role) == ("ci", "run")
    assert token.sha256 == hashlib.sha256(sent.encode()).hexdigest()


def test_only_its_user_reads_what_was_made(made: Path) -> None:
    for file in (made, *made.iterdir()):
        assert file.stat().st_mode & 0o077 == 0, file
