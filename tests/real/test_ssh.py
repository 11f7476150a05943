"""ssh itself, as tests by ssh start it: what it prints on its own is no output of the node."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from nodevitals.checks.ssh import remote
from testbed import sshd

ADDRESS = "127.0.0.9"
BANNER = "Authorized users only.\nAll activity is logged.\n"


@pytest.fixture
def node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A node whose sshd has a banner, and which the client does not know yet."""
    (tmp_path / "banner").write_text(BANNER)
    server = sshd.Sshd(tmp_path / "server", ADDRESS, more=f"Banner {tmp_path / 'banner'}")
    server.authorize(sshd.make_key(tmp_path / "key"), "")
    (tmp_path / "config").write_text(
        f"Host gpu-1\n  HostName {ADDRESS}\n  User {sshd.USER}\n"
        f"  IdentityFile {tmp_path / 'key'}\n  UserKnownHostsFile {tmp_path / 'known'}\n"
        "  StrictHostKeyChecking accept-new\n"
    )
    client = tmp_path / "bin" / "ssh"
    client.parent.mkdir()
    client.write_text(f'#!/bin/sh\nexec /usr/bin/ssh -F {tmp_path / "config"} "$@"\n')
    client.chmod(0o755)
    monkeypatch.setenv("PATH", f"{client.parent}:{os.environ['PATH']}")
    with server:
        yield "gpu-1"


def test_banner_and_new_host_are_no_output(node: str) -> None:
    """They came with the output, and their words were taken for names of processes."""
    assert remote.run(node, ["echo", "well"], 5) == remote.Done("well\n", 0)
    used = remote.in_use([node])
    assert "logged" not in used.get(node, "")


def test_a_refused_login_says_why(node: str, tmp_path: Path) -> None:
    (tmp_path / "server" / "authorized_keys").write_text("")
    assert "Permission denied" in remote.unreachable([node])[node]
