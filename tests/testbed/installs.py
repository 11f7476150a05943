"""A machine to install packages on: this one, with all that is written to it kept apart.

An overlay of the root file system over a tmpfs, with a /run of its own and a program `systemctl`
that records its calls. It needs root and a private mount namespace.
"""

from __future__ import annotations

import os
import shlex
import shutil
import stat
import subprocess
from pathlib import Path

import requests

from testbed import confinement
from testbed.node import ROOT, Node

# What a package manager keeps for itself, and what is changed here.
BOOKKEEPING = ("var/lib/dpkg", "var/lib/rpm", "var/log", "var/cache")
MANUALS = "var/lib/man-db/auto-update"
# What an agent that ran on this machine has left.
LEFT = ("var/lib/nodevitals", "etc/nodevitals")
CHANGED = ("packages", "usr/bin/systemctl", "usr/sbin/policy-rc.d", MANUALS)
# Programs of tools/setup on the machine.
TOOLS = "/run/tools"
# What needs a running systemd is recorded alone: a test makes the agent active by a file. The rest
# is done by the real one, as in a chroot.
SYSTEMCTL = """#!/bin/sh
echo "$*" >>/run/systemctl.calls
case "$*" in
*is-active*) [ -e /run/nodevitals.active ] ;;
*daemon-reload* | *start* | *stop*) ;;
*) SYSTEMD_OFFLINE=1 LD_LIBRARY_PATH=LIBRARIES exec /run/tools/bin/systemctl "$@" ;;
esac
"""


def libraries(place: Path) -> str:
    """LD_LIBRARY_PATH of tools/setup's programs, whose folder is mounted there."""
    own = ROOT / ".tools/root"
    folders = [path.relative_to(own) for path in own.glob("usr/lib/*-linux-gnu")]
    return ":".join(f"{place / one}:{place / one / 'systemd'}" for one in folders)


def _mount(*words: str | Path) -> None:
    subprocess.run(["mount", *words], check=True)


class Machine:
    """The machine, inside the with block."""

    def __init__(self, folder: Path, *, booted: bool = True) -> None:
        self.layers = folder / "layers"
        self.root = folder / "root"
        self.booted = booted
        """Whether systemd appears to run; it does not in a chroot or while an image is built."""
        self._before: set[tuple[str, int]] = set()

    def __enter__(self) -> Machine:
        self.layers.mkdir(parents=True)
        self.root.mkdir()
        _mount("-t", "tmpfs", "-o", "size=256m,mode=755", "layers", self.layers)
        for name in ("upper", "work"):
            (self.layers / name).mkdir()
        layers = f"lowerdir=/,upperdir={self.layers / 'upper'},workdir={self.layers / 'work'}"
        _mount("-t", "overlay", "overlay", "-o", layers, self.root)
        _mount("-t", "tmpfs", "-o", "size=8m,mode=755", "run", self.root / "run")
        for name in ("dev", "proc", "sys"):
            _mount("--rbind", f"/{name}", self.root / name)
        self._replace_systemctl()
        (self.root / "usr/sbin/policy-rc.d").unlink(missing_ok=True)  # of containers
        # Each dpkg would index the manuals of the whole machine, which takes minutes on a busy one.
        (self.root / MANUALS).unlink(missing_ok=True)
        if self.booted:
            (self.root / "run/systemd/system").mkdir(parents=True)
        (self.root / "packages").mkdir()
        for left in LEFT:
            shutil.rmtree(self.root / left, ignore_errors=True)
        self._before = self._changes()
        return self

    def __exit__(self, *_: object) -> None:
        subprocess.run(["umount", "--recursive", "--lazy", self.root], check=True)
        subprocess.run(["umount", "--lazy", self.layers], check=True)

    def _replace_systemctl(self) -> None:
        tools = self.root / TOOLS[1:]
        tools.mkdir()
        _mount("--bind", ROOT / ".tools/root", tools)
        program = self.root / "usr/bin/systemctl"
        program.unlink(missing_ok=True)
        program.write_text(SYSTEMCTL.replace("LIBRARIES", libraries(Path(TOOLS))))
        program.chmod(0o755)

    def inside(self, *argv: str) -> list[str]:
        """The command that runs another one on the machine."""
        clean = ["env", "-i", "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"]
        return ["chroot", str(self.root), *clean, "DEBIAN_FRONTEND=noninteractive", *argv]

    def run(self, *argv: str) -> subprocess.CompletedProcess[str]:
        """Run a program on the machine."""
        return _run(self.inside(*argv))

    def put(self, package: Path) -> str:
        """Copy a package to the machine. Returns its path there."""
        (self.root / "packages" / package.name).write_bytes(package.read_bytes())
        return f"/packages/{package.name}"

    def dpkg(self, *words: str | Path) -> subprocess.CompletedProcess[str]:
        """Run dpkg; a Path is a package of this machine's."""
        given = [self.put(word) if isinstance(word, Path) else word for word in words]
        return self.run("dpkg", "--force-confold", *given)

    def rpm(self, *words: str | Path) -> subprocess.CompletedProcess[str]:
        """Run tools/setup's rpm on the machine's root; a Path is a package of this machine's."""
        own = ROOT / ".tools/root"
        variables = [f"LD_LIBRARY_PATH={libraries(own)}", f"RPM_CONFIGDIR={own}/usr/lib/rpm"]
        place = [f"--root={self.root}", "--dbpath=/var/lib/rpm"]
        return _run(["env", *variables, f"{own}/usr/bin/rpm", *place, *map(str, words)])

    def analyze(self, *words: str) -> subprocess.CompletedProcess[str]:
        """Run systemd-analyze on the machine."""
        variable = f"LD_LIBRARY_PATH={libraries(Path(TOOLS))}"
        return self.run("env", variable, f"{TOOLS}/usr/bin/systemd-analyze", *words)

    def calls(self) -> list[str]:
        """The calls of systemctl since this was last asked."""
        path = self.root / "run/systemctl.calls"
        found = path.read_text().splitlines() if path.exists() else []
        path.unlink(missing_ok=True)
        return found

    def written(self) -> set[str]:
        """What has changed on it: files, new directories, and deleted files."""
        found = {path for path, _ in self._changes() - self._before}
        return {path for path in found if not path.startswith(BOOKKEEPING + CHANGED)}

    def _changes(self) -> set[tuple[str, int]]:
        """The paths that differ from this machine, each with the kind of the file."""
        upper = self.layers / "upper"
        found = set()
        for place, folders, files in os.walk(upper):
            for name in (*folders, *files):
                path = Path(place, name)
                inner = str(path.relative_to(upper))
                kind = stat.S_IFMT(path.lstat().st_mode)
                same = kind == stat.S_IFDIR and Path("/", inner).is_dir() and inner not in LEFT
                if not same:
                    found.add((inner, kind))
        return found


def _run(argv: list[str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(argv, capture_output=True, text=True, check=False, timeout=600)


class InstalledAgent(Node):
    """The agent as the installed unit starts it, at its own port: a network namespace is needed."""

    def __init__(self, machine: Machine, *wrapper: str) -> None:
        self.machine = machine
        self.wrapper = wrapper
        self.environment = dict(os.environ)
        self.port = 9855
        self.url = f"http://127.0.0.1:{self.port}"
        self.log_file = machine.layers.parent / "agent.log"
        self.session = requests.Session()

    def command(self) -> list[str]:
        """ExecStart of the unit, with the directories that systemd makes."""
        unit = self.machine.root / "usr/lib/systemd/system/nodevitals.service"
        service = confinement.parse_service(unit.read_text())
        for key, place in (("StateDirectory", "var/lib"), ("RuntimeDirectory", "run")):
            (self.machine.root / place / service[key][0]).mkdir(mode=0o700, exist_ok=True)
        return self.machine.inside(*self.wrapper, *shlex.split(service["ExecStart"][0]))
