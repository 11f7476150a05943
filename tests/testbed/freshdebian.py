"""A fresh Debian 12 with systemd as process 1, in namespaces: what a new user starts with.

In: a folder for the root file system, a cache. Out: a machine, and a shell of its root. Needs root,
/dev/net/tun and a unified cgroup hierarchy. It has no network device of the host: packets leave
through slirp4netns. It ends, with all its processes and mounts, when it is left.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

from testbed.debianroot import make_root, with_tools
from testbed.node import wait_until

PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
ENVIRONMENT = ("HOME=/root", "LANG=C.UTF-8", "TERM=dumb", "DEBIAN_FRONTEND=noninteractive")
NAMESPACES = "--mount --propagation=private --uts --ipc --net --cgroup --pid --fork"
START_SECONDS = 60.0

# Devices of a container, its own /proc, /sys and cgroups, then systemd. Host devices are not there.
BOOT = """
set -e
root=$1
mount --bind "$root" "$root"
cd "$root"
mount -t proc proc proc
mount -t sysfs sysfs sys
mount -t cgroup2 cgroup2 sys/fs/cgroup
mount -t tmpfs -o mode=755 tmpfs dev
mount -t tmpfs -o mode=755 tmpfs run
for name in null zero full random urandom tty kmsg fuse; do
  [ -e /dev/$name ] || continue
  touch dev/$name; mount --bind /dev/$name dev/$name
done
mkdir dev/pts dev/shm
mount -t devpts -o newinstance,ptmxmode=0666 devpts dev/pts
ln -s pts/ptmx dev/ptmx
ln -s /proc/self/fd dev/fd
mount -t tmpfs tmpfs dev/shm
ip link set lo up
mkdir -p .old
pivot_root . .old
umount --lazy /.old
rmdir /.old
mount --make-rshared /
exec env -i container=fresh-debian /lib/systemd/systemd </dev/null >/dev/null 2>&1
"""


class RefusedError(RuntimeError):
    """This machine cannot run a fresh Debian; the text says what is missing."""


class FreshDebian:
    """A context: a running Debian 12 in `folder`, from the root file system cached in `cache`."""

    def __init__(self, folder: Path, cache: Path) -> None:
        self.root = folder / "root"
        self._cache = cache
        self._cgroup = Path()
        self._processes: list[subprocess.Popen[bytes]] = []
        self._init = 0

    def __enter__(self) -> FreshDebian:
        _check_machine()
        try:
            make_root(self.root, self._cache)
            self._start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def shell(self) -> subprocess.Popen[str]:
        """Return a login shell of root that reads commands from its standard input."""
        return subprocess.Popen(
            [*self._enter(), "bash", "--login"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def run(self, *command: str) -> str:
        """Run a command to its end and return its output; a failure is an exception."""
        return subprocess.run(
            [*self._enter(), *command], check=True, text=True, capture_output=True
        ).stdout

    def close(self) -> None:
        """End all processes, and remove the root file system and the cgroups."""
        for process in reversed(self._processes):
            process.kill()
            process.wait()
        self._processes.clear()
        if self._cgroup != Path():
            _end_cgroup(self._cgroup)
            self._cgroup = Path()
        shutil.rmtree(self.root, ignore_errors=True)

    def _enter(self) -> list[str]:
        enter = ["nsenter", "--target", str(self._init), "--all"]
        return [
            *enter,
            "env",
            "--ignore-environment",
            "--chdir=/root",
            f"PATH={PATH}",
            *ENVIRONMENT,
        ]

    def _start(self) -> None:
        self._cgroup = _unified() / f"fresh-debian-{os.getpid()}"
        self._cgroup.mkdir()
        script = f'echo $$ > {self._cgroup}/cgroup.procs; exec "$@"'
        unshare = ["unshare", *NAMESPACES.split(), "--kill-child=SIGKILL"]
        command = [
            "bash",
            "-c",
            script,
            "enter",
            *unshare,
            "bash",
            "-c",
            BOOT,
            "boot",
            str(self.root),
        ]
        outer = subprocess.Popen(command, start_new_session=True)
        self._processes.append(outer)
        self._init = _child(outer)
        self._network()
        wait_until(lambda: self._state() in ("running", "degraded"), START_SECONDS, "systemd")

    def _network(self) -> None:
        command = ["slirp4netns", "--configure", "--mtu=65520", "--disable-host-loopback"]
        slirp = subprocess.Popen(
            [*command, str(self._init), "tap0"],
            env=with_tools(self._cache),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        self._processes.append(slirp)

    def _state(self) -> str:
        command = [*self._enter(), "systemctl", "is-system-running"]
        return subprocess.run(command, check=False, text=True, capture_output=True).stdout.strip()


def _check_machine() -> None:
    if os.geteuid() != 0:
        raise RefusedError("a fresh Debian needs root")
    if not Path("/dev/net/tun").exists():
        raise RefusedError("a fresh Debian needs /dev/net/tun for its network: modprobe tun")
    _unified()


def _unified() -> Path:
    for folder in (Path("/sys/fs/cgroup"), Path("/sys/fs/cgroup/unified")):
        if (folder / "cgroup.controllers").exists():
            return folder
    raise RefusedError("systemd needs a unified cgroup hierarchy in /sys/fs/cgroup")


def _child(process: subprocess.Popen[bytes]) -> int:
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children")
    (child,) = wait_until(lambda: children.read_text().split(), START_SECONDS, "unshare")
    name = Path(f"/proc/{child}/comm")
    wait_until(lambda: name.read_text() == "systemd\n", START_SECONDS, "the start script")
    return int(child)


def _end_cgroup(folder: Path) -> None:
    """Kill what is left in a cgroup, and remove it with those below it."""
    kill = folder / "cgroup.kill"
    if kill.exists():
        kill.write_text("1")
    wait_until(lambda: _removed(folder), what=f"the end of the processes in {folder}")


def _removed(folder: Path) -> bool:
    below = (path for path in folder.rglob("*/") if path.is_dir())
    for path in [*sorted(below, reverse=True), folder]:
        try:
            path.rmdir()
        except OSError:
            return False
    return True
