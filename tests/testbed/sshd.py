"""Debian's sshd, one per address of the loopback interface, with users of its own.

Each has a mount namespace in which /etc/passwd and /run are its own, so that nothing of this
machine changes. The user is `monitor`; its authorized_keys is a file of the server's folder.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
from contextlib import suppress
from pathlib import Path

from testbed.node import ROOT, wait_until

DEBIAN = ROOT / ".tools/root"
USER = "monitor"
PORT = 22
RESTRICTED = 'restrict,command="true"'
_CONFIG = """\
ListenAddress {address}:{port}
HostKey {folder}/host_key
AuthorizedKeysFile {folder}/authorized_keys
PidFile {folder}/pid
StrictModes no
UsePAM no
PasswordAuthentication no
KbdInteractiveAuthentication no
AllowAgentForwarding yes
MaxStartups 100
{more}
"""
_START = """\
#!/bin/sh
export {variables}
setsid unshare --mount sh -ec '
  mount --bind {folder}/passwd /etc/passwd
  mount -t tmpfs tmpfs /run
  mkdir -m 755 /run/sshd
  exec {sshd} -D -e -f {folder}/sshd_config
' < /dev/null >> {folder}/log 2>&1 &
"""


def environment(path: str | None = None) -> dict[str, str]:
    """Variables with which Debian's ssh is found; before all of `path`, by default that here."""
    libraries = ":".join(
        str(folder) for part in ("lib", "usr/lib") for folder in (DEBIAN / part).glob("*-linux-gnu")
    )
    path = path or os.environ["PATH"]
    return {"PATH": f"{DEBIAN}/usr/bin:{path}", "LD_LIBRARY_PATH": libraries}


def make_key(path: Path, passphrase: str = "") -> Path:
    """Make a key pair; in place of one that is there."""
    for old in (path, public(path)):
        old.unlink(missing_ok=True)
    words = ["ssh-keygen", "-q", "-t", "ed25519", "-N", passphrase, "-C", "", "-f", str(path)]
    subprocess.run(words, check=True, env={**os.environ, **environment()})
    return path


def public(path: Path) -> Path:
    """The file with the public half."""
    return Path(f"{path}.pub")


class Sshd:
    """A server."""

    def __init__(self, folder: Path, address: str, port: int = PORT, more: str = "") -> None:
        self.folder, self.address, self.port, self.more = folder, address, port, more
        folder.mkdir(parents=True)
        make_key(folder / "host_key")
        (folder / "authorized_keys").touch()
        (folder / "passwd").write_text(
            "root:x:0:0:root:/root:/bin/sh\n"
            "sshd:*:100:65534::/run/sshd:/usr/sbin/nologin\n"
            f"{USER}:*:0:0::/:/bin/sh\n"  # who may read the folders of tests
        )

    def authorize(self, key: Path, options: str = RESTRICTED) -> None:
        """Let this key in, and no other."""
        (self.folder / "authorized_keys").write_text(f"{options} {public(key).read_text()}")

    def known_host(self) -> str:
        """A line of known_hosts."""
        name = self.address if self.port == PORT else f"[{self.address}]:{self.port}"
        return f"{name} {public(self.folder / 'host_key').read_text()}"

    @property
    def program(self) -> Path:
        """A script that starts it in the background; what a site's command calls."""
        return self.folder / "start"

    def start(self) -> None:
        """Start it, and wait until it accepts."""
        values = {"folder": self.folder, "address": self.address, "port": self.port}
        (self.folder / "sshd_config").write_text(_CONFIG.format(**values, more=self.more))
        variables = " ".join(f"{name}={value}" for name, value in environment().items())
        self.program.write_text(
            _START.format(folder=self.folder, sshd=DEBIAN / "usr/sbin/sshd", variables=variables)
        )
        self.program.chmod(0o755)
        subprocess.run([self.program], check=True)
        wait_until(self.accepts, what=str(self.folder / "log"))

    def accepts(self) -> bool:
        """Whether it accepts connections."""
        with suppress(OSError), socket.create_connection((self.address, self.port), 1.0):
            return True
        return False

    def kill(self) -> None:
        """Kill it, and what it has started."""
        with suppress(FileNotFoundError, ProcessLookupError):
            os.killpg(int((self.folder / "pid").read_text()), signal.SIGKILL)
        wait_until(lambda: not self.accepts())

    def __enter__(self) -> Sshd:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()
