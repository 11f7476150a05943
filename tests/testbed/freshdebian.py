"""A fresh Debian 12 with systemd as process 1, in namespaces of its own: what a new user starts with.

In: a folder for the root file system; a Debian mirror. Out: a machine, and a shell of its root.
Needs root, /dev/net/tun and a unified cgroup hierarchy. The machine has no network card: its packets
leave through slirp4netns. It ends, with all its processes and mounts, when it is left.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import time
from pathlib import Path
from types import TracebackType

# A minimal installation: Debian's essential packages, apt, systemd; certificates for PyPI, `ip`.
PACKAGES = "init,ca-certificates,iproute2"
MIRROR = "http://deb.debian.org/debian"
SECURITY = "http://deb.debian.org/debian-security"
SOURCES = f"""\
deb {MIRROR} bookworm main
deb {MIRROR} bookworm-updates main
deb {SECURITY} bookworm-security main
"""
HOSTNAME = "node-1"
# Debian packages that make the machine; unpacked beside it where they are not installed.
TOOLS = ("mmdebstrap", "slirp4netns", "libslirp0", "libglib2.0-0", "libseccomp2")
CERTIFICATES = Path("/etc/ssl/certs/ca-certificates.crt")

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


class Refused(RuntimeError):
    """This machine cannot run a fresh Debian; the text says what is missing."""


class FreshDebian:
    """A context: a running Debian 12 in `folder`, from the root file system cached in `cache`."""

    def __init__(self, folder: Path, cache: Path) -> None:
        self.root = folder / "root"
        self.built_seconds = 0.0
        self._cache = cache
        self._cgroup = Path()
        self._processes: list[subprocess.Popen[bytes]] = []
        self._init = 0

    def __enter__(self) -> FreshDebian:
        _check_machine()
        try:
            self._unpack()
            self._start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
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
            _remove_cgroups(self._cgroup)
            self._cgroup = Path()
        shutil.rmtree(self.root, ignore_errors=True)

    def _enter(self) -> list[str]:
        environment = ["HOME=/root", "LANG=C.UTF-8", "TERM=dumb", "DEBIAN_FRONTEND=noninteractive"]
        path = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
        return [
            "nsenter",
            "--target",
            str(self._init),
            "--all",
            "env",
            "--chdir=/root",
            "-i",
            path,
            *environment,
        ]

    def _unpack(self) -> None:
        started = time.monotonic()
        tools = _tools(self._cache)
        archive = self._cache / "base.tar"
        if not archive.exists():
            partial = archive.with_suffix(".partial.tar")
            command = [
                "mmdebstrap",
                "--quiet",
                "--variant=minbase",
                f"--include={PACKAGES}",
                "bookworm",
            ]
            subprocess.run([*command, str(partial), MIRROR], check=True, env=tools)
            partial.rename(archive)
        self.built_seconds = time.monotonic() - started
        self.root.mkdir(parents=True)
        subprocess.run(["tar", "-C", self.root, "-xf", archive], check=True)
        (self.root / "etc/apt/sources.list").write_text(SOURCES)
        (self.root / "etc/hostname").write_text(f"{HOSTNAME}\n")
        hosts = (
            f"127.0.0.1 localhost\n127.0.1.1 {HOSTNAME}\n::1 localhost\n"  # as Debian's installer
        )
        (self.root / "etc/hosts").write_text(hosts)
        (self.root / "etc/resolv.conf").write_text("nameserver 10.0.2.3\n")  # slirp4netns
        # Where a proxy of this site signs PyPI's answers, its certificate is among this machine's.
        shutil.copy(CERTIFICATES, self.root / "etc/ssl/certs/ca-certificates.crt")
        (self.root / "etc/pip.conf").write_text(f"[global]\ncert = {CERTIFICATES}\n")

    def _start(self) -> None:
        self._cgroup = _unified() / f"fresh-debian-{os.getpid()}"
        self._cgroup.mkdir()
        script = f'echo $$ > {self._cgroup}/cgroup.procs; exec "$@"'
        unshare = [
            "unshare",
            "--mount",
            "--propagation=private",
            "--uts",
            "--ipc",
            "--net",
            "--cgroup",
        ]
        unshare += [
            "--pid",
            "--fork",
            "--kill-child=SIGKILL",
            "bash",
            "-c",
            BOOT,
            "boot",
            str(self.root),
        ]
        outer = subprocess.Popen(["bash", "-c", script, "enter", *unshare], start_new_session=True)
        self._processes.append(outer)
        self._init = _child(outer)
        self._network()
        _wait(lambda: self._state() in ("running", "degraded"), "systemd does not start")

    def _network(self) -> None:
        command = ["slirp4netns", "--configure", "--mtu=65520", "--disable-host-loopback"]
        slirp = subprocess.Popen(
            [*command, str(self._init), "tap0"],
            env=_tools(self._cache),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        self._processes.append(slirp)

    def _state(self) -> str:
        command = [*self._enter(), "systemctl", "is-system-running"]
        return subprocess.run(command, check=False, text=True, capture_output=True).stdout.strip()


def _check_machine() -> None:
    if os.geteuid() != 0:
        raise Refused("a fresh Debian needs root")
    if not Path("/dev/net/tun").exists():
        raise Refused("a fresh Debian needs /dev/net/tun for its network: modprobe tun")
    _unified()


def _unified() -> Path:
    for folder in (Path("/sys/fs/cgroup"), Path("/sys/fs/cgroup/unified")):
        if (folder / "cgroup.controllers").exists():
            return folder
    raise Refused("systemd needs a unified cgroup hierarchy in /sys/fs/cgroup")


def _tools(cache: Path) -> dict[str, str]:
    """Return the environment with mmdebstrap and slirp4netns, unpacked into `cache` once."""
    folder = cache / "tools"
    if not folder.exists():
        partial = cache / "tools.partial"
        shutil.rmtree(partial, ignore_errors=True)
        partial.mkdir(parents=True)
        subprocess.run(["apt-get", "-qq", "download", *TOOLS], check=True, cwd=partial)
        for package in partial.glob("*.deb"):
            subprocess.run(["dpkg-deb", "-x", package, partial], check=True)
        partial.rename(folder)
    libraries = ":".join(map(str, (folder / "usr/lib").glob("*-linux-gnu")))
    return {
        **os.environ,
        "PATH": f"{folder}/usr/bin:{os.environ['PATH']}",
        "LD_LIBRARY_PATH": libraries,
    }


def _child(process: subprocess.Popen[bytes]) -> int:
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children")
    _wait(lambda: bool(children.read_text().split()), "unshare has started no process")
    child = int(children.read_text().split()[0])
    name = Path(f"/proc/{child}/comm")
    _wait(lambda: name.exists() and name.read_text() == "systemd\n", "the start script fails")
    return child


def _remove_cgroups(folder: Path) -> None:
    """Kill what is left in a cgroup, and remove it with those below it."""
    kill = folder / "cgroup.kill"
    if kill.exists():
        kill.write_text("1")
    for _ in range(50):
        for path in sorted(folder.rglob("*/"), reverse=True):
            if path.is_dir():
                _remove(path)
        if _remove(folder):
            return
        time.sleep(0.1)
    raise RuntimeError(f"processes are left in {folder}")


def _remove(folder: Path) -> bool:
    try:
        folder.rmdir()
    except OSError:
        return False
    return True


def _wait(condition: object, text: str, seconds: float = 60) -> None:
    deadline = time.monotonic() + seconds
    while not condition():  # type: ignore[operator]
        if time.monotonic() > deadline:
            raise RuntimeError(text)
        time.sleep(0.1)
