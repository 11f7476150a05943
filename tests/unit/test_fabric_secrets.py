"""Whose certificate it is, and what changes with the files."""

from __future__ import annotations

from pathlib import Path

import pytest
import trustme

from nodevitals.probe import ProbeError
from nodevitals.probes.fabric.secrets import Secrets, has_name, is_issued_for
from nodevitals.probes.fabric.settings import FabricTlsSettings


@pytest.mark.parametrize(
    ("names", "source", "is_owner"),
    [
        ([("DNS", "node-1")], "node-1", True),
        ([("DNS", "Node-1")], "nODE-1", True),
        ([("DNS", "node-1")], "node-2", False),
        ([("DNS", "node-1")], "node-1.example", False),
        ([("DNS", "node-2"), ("DNS", "node-1")], "node-1", True),
        ([("DNS", "*.example")], "node-1.example", True),
        ([("DNS", "*.example")], "a.node-1.example", False),
        ([("DNS", "*.example")], ".example", False),
        ([("DNS", "*.example")], "example", False),
        ([("DNS", "*")], "node-1", False),
        ([("IP Address", "10.0.0.1")], "10.0.0.1", True),
        ([("DNS", "10.0.0.1")], "10.0.0.1", False),
        ([("IP Address", "FD00:0:0:0:0:0:0:2")], "fd00::2", True),
        ([("email", "node-1"), ("URI", "node-1")], "node-1", False),
        ([], "node-1", False),
    ],
)
def test_source_is_a_name_of_the_certificate(
    names: list[tuple[str, str]], source: str, is_owner: bool
) -> None:
    certificate = {"subject": ((("commonName", source),),), "subjectAltName": tuple(names)}
    assert is_issued_for(certificate, source) == is_owner


def test_nothing_is_issued_without_names() -> None:
    assert not is_issued_for({}, "node-1")


@pytest.fixture
def files(tmp_path: Path) -> FabricTlsSettings:
    names = {"cert_file": "cert.pem", "key_file": "key.pem", "ca_file": "ca.pem"}
    issue(tmp_path)
    return FabricTlsSettings(**{name: str(tmp_path / file) for name, file in names.items()})


def issue(folder: Path) -> None:
    """Write the files of a new authority."""
    authority = trustme.CA()
    certificate = authority.issue_cert("node-1")
    authority.cert_pem.write_to_path(str(folder / "ca.pem"))
    certificate.private_key_pem.write_to_path(str(folder / "key.pem"))
    certificate.cert_chain_pems[0].write_to_path(str(folder / "cert.pem"))


def test_replaced_authority_is_no_longer_trusted(tmp_path: Path, files: FabricTlsSettings) -> None:
    (tmp_path / "token").write_text("a token of the tests")
    secrets = Secrets(str(tmp_path / "token"), files)
    before = secrets.server_context.get_ca_certs()
    issue(tmp_path)
    secrets.refresh()
    for context in (secrets.server_context, secrets.client_context):
        trusted = context.get_ca_certs()
        assert len(trusted) == 1
        assert trusted != before


@pytest.mark.parametrize("token", ["", "short", "a tokén of the tests", "two lines\nof token"])
def test_unusable_token_is_refused(tmp_path: Path, files: FabricTlsSettings, token: str) -> None:
    """Before the first request: it could not be sent in a header."""
    (tmp_path / "token").write_text(token, encoding="utf-8")
    with pytest.raises(ProbeError, match="printable ASCII"):
        Secrets(str(tmp_path / "token"), files)


@pytest.mark.parametrize(
    ("names", "is_hub"),
    [
        ([("DNS", "Hub.example")], True),
        ([("DNS", "node-1"), ("IP Address", "10.0.0.9")], True),
        ([("DNS", "*.example")], False),  # all nodes may share it
        ([("DNS", "node-1")], False),
        ([], False),
    ],
)
def test_no_wildcard_is_the_hub(names: list[tuple[str, str]], is_hub: bool) -> None:
    certificate = {"subjectAltName": tuple(names)}
    assert has_name(certificate, ("hub.example", "10.0.0.9")) == is_hub
