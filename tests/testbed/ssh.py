"""An `ssh` that runs commands here, as if on a node: its /sys, /run and /proc are folders, the
latter with the sockets of this machine.

Each node is a folder named by an address of the loopback interface; a node without a folder cannot
be reached. The file `environment` in a node's folder holds KEY=VALUE lines.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from testbed import programs

LOGIN = ["-o", "BatchMode=yes", "-o", "ConnectTimeout=5"]
OPTIONS = [*LOGIN, "-o", "LogLevel=ERROR"]
BOUND = {"sys": "/sys", "run": "/run", "proc": "/proc"}
SOCKETS = "proc/self/net"


class Nodes:
    """The folder of the nodes, and the program."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        programs.install(folder / "bin", "ssh", ["ssh"], str(folder))

    def add(self, name: str, **environment: str) -> Path:
        """Add a node, or change its environment."""
        folder = self.folder / name
        for part in ("sys/devices/system/cpu", "run", "proc/1/fd", SOCKETS):
            (folder / part).mkdir(parents=True, exist_ok=True)
        lines = (f"{key}={value}\n" for key, value in environment.items())
        (folder / "environment").write_text("".join(lines))
        return folder


def main(_: str, nodes: str) -> None:
    """Run as ssh: `ssh OPTIONS [-l USER] NODE -- COMMAND`, or as mpirun starts its daemon:
    `ssh -x OPTIONS [-l USER] NODE WORD...`.
    """
    arguments = sys.argv[1:]
    daemon = arguments[:1] == ["-x"]
    if daemon:
        del arguments[0]
    options = LOGIN if daemon else OPTIONS
    if arguments[: len(options)] != options:
        sys.exit(f"ssh: unexpected options: {arguments}")
    del arguments[: len(options)]
    if arguments[0] == "-l":
        del arguments[:2]
    if not daemon and (len(arguments) != 3 or arguments[1] != "--"):
        sys.exit(f"ssh: unexpected arguments: {arguments}")
    name, command = arguments[0], " ".join(arguments[1 if daemon else 2 :])
    folder = Path(nodes, name)
    if not folder.is_dir():
        sys.stderr.write(f"ssh: connect to host {name} port 22: No route to host\n")
        sys.exit(255)
    if (folder / "denied").exists():
        sys.stderr.write(f"root@{name}: Permission denied (publickey,password).\n")
        sys.exit(255)
    # The sockets are those of this process, which the command replaces.
    binds = [f"mount --rbind /proc/{os.getpid()}/net {folder / SOCKETS}"]
    binds += [
        f"mount --rbind {folder / part} {place}"
        for part, place in BOUND.items()
        if (folder / part).is_dir()
    ]
    environment = dict(os.environ)
    for line in (folder / "environment").read_text().splitlines():
        key, _, value = line.partition("=")
        environment[key] = value
    script = " && ".join([*binds, f"exec sh -c {_quoted(command)}"])
    os.execvpe("unshare", ["unshare", "--mount", "sh", "-c", script], environment)


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "'\\''") + "'"
