"""A real sshd on each node of a test bed, and an ssh client that may log in there as root.

In: network namespaces by the nodes' names, which the bed's /etc/hosts has. The caller's mount and
pid namespaces are its own, and so is /run: sshd and its files end with them.
"""

from __future__ import annotations

import os
import socket
import subprocess
from collections.abc import Mapping
from functools import partial
from pathlib import Path

from testbed.fabric import DEBIAN, REAL_TOOLS
from testbed.node import wait_until
from testbed.sshd import PORT, make_key


class SshServers:
    """The servers, one in each namespace."""

    def __init__(
        self, folder: Path, namespaces: Mapping[str, str], hosts: Mapping[str, str]
    ) -> None:
        """`namespaces` and `hosts`: name of the namespace, and address, of each node."""
        self._folder = folder
        self._namespaces = namespaces
        self._hosts = hosts

    def start(self) -> None:
        """Start them, and wait until they accept connections."""
        folder = self._folder
        folder.mkdir()
        for name in ("host", "client"):
            make_key(folder / name)
        self._show("/etc/passwd", Path("/etc/passwd").read_text() + _user())
        self._show("/etc/ssh/ssh_config", self._client_config())
        (folder / "sshd_config").write_text(self._server_config())
        Path("/run/sshd").mkdir(exist_ok=True)
        server = DEBIAN / "usr/sbin/sshd"
        for namespace in self._namespaces.values():
            argv = ["ip", "netns", "exec", namespace, str(server)]
            argv += ["-D", "-e", "-f", str(folder / "sshd_config")]
            with (folder / "sshd.log").open("ab") as log:
                subprocess.Popen(
                    argv,
                    env={**os.environ, **REAL_TOOLS},
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                )
        for host in self._hosts.values():
            wait_until(partial(_accepts, host), what=f"sshd; log: {folder / 'sshd.log'}")

    def _show(self, place: str, text: str) -> None:
        """Let a file of this machine have this text, for the processes of this mount namespace."""
        file = self._folder / Path(place).name
        file.write_text(text)
        subprocess.run(["mount", "--bind", file, place], check=True)

    def _client_config(self) -> str:
        key = (self._folder / "host.pub").read_text()
        names = ",".join((*self._hosts, *self._hosts.values()))
        (self._folder / "known_hosts").write_text(f"{names} {key}")
        return (
            f"IdentityFile {self._folder}/client\n"
            "IdentitiesOnly yes\n"
            f"GlobalKnownHostsFile {self._folder}/known_hosts\n"
            "UserKnownHostsFile none\n"
        )

    def _server_config(self) -> str:
        tools = " ".join(f"{name}={value}" for name, value in REAL_TOOLS.items())
        return (
            f"Port {PORT}\n"
            f"HostKey {self._folder}/host\n"
            f"AuthorizedKeysFile {self._folder}/client.pub\n"
            "PidFile none\n"
            "UsePAM no\n"
            "UseDNS no\n"
            "StrictModes no\n"
            "MaxStartups 100\n"
            "PermitRootLogin prohibit-password\n"
            f"SetEnv {tools}\n"
        )


def _user() -> str:
    """The user as which sshd runs what the network can reach, where this machine has none."""
    known = any(line.startswith("sshd:") for line in Path("/etc/passwd").read_text().splitlines())
    return "" if known else "sshd:x:65533:65534::/run/sshd:/usr/sbin/nologin\n"


def _accepts(host: str) -> bool:
    with socket.socket() as sock:
        sock.settimeout(1)
        return sock.connect_ex((host, PORT)) == 0
