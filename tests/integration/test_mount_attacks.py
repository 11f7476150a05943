"""Probe `mounts` on mounts that other users may write to: what they do there is interference, and
never corruption, a hung filer, or a way to have root open, make or remove anything.
"""

from __future__ import annotations

import fcntl
import os
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from types import FrameType

import pytest

from integration.test_mounts import Outcome
from nodevitals.probe import Readings
from nodevitals.probes.mounts.access import MountAccess
from testbed.faultyfs import ANONYMOUS, FaultyFileSystem
from testbed.inotify import Watch
from testbed.node import wait_until
from testbed.racer import BEACON, OWN, PRECIOUS, Racer

USER = 12345
RACE_SECONDS = 3.0
MOST_SECONDS = 60.0
KNOWN = ("writable", "readable", "content_intact")


@pytest.fixture(autouse=True)
def node_name(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fix the name that the probe's own files start with."""
    monkeypatch.setenv("NODE_NAME", "node-1")


@pytest.fixture(autouse=True)
def no_hang() -> Iterator[None]:
    """A run that hangs fails its test, and does not stop the others."""

    def fail(number: int, frame: FrameType | None) -> None:
        raise AssertionError("a run of the probe hangs")

    before = signal.signal(signal.SIGALRM, fail)
    signal.alarm(int(2 * MOST_SECONDS))
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


@pytest.fixture
def scratch(tmp_path: Path) -> Iterator[Path]:
    """A mount that every user may write to, without the sticky bit."""
    point = tmp_path / "scratch"
    point.mkdir()
    options = "size=64m,mode=0777"
    subprocess.run(["mount", "-t", "tmpfs", "-o", options, "scratch", point], check=True)
    for folder in (tmp_path, *tmp_path.parents[:-2]):
        folder.chmod(folder.stat().st_mode | 0o011)  # for the other user
    yield point
    subprocess.run(["umount", "-l", point], check=True)


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    """What is not on the mount: a file and a FIFO."""
    folder = tmp_path / "outside"
    folder.mkdir()
    (folder / "secret").write_text("secret")
    os.mkfifo(folder / "trap", 0o666)
    return folder


def interference(found: Outcome) -> str:
    """The message of a run that another user has disturbed: nothing is known of the mount."""
    assert found.reason == "interference"
    assert "\n" not in found.message
    assert not set(KNOWN) & found.values.keys()
    assert not found.values.get("content_mismatches_total")
    return found.message


class Race:
    """Runs of the probe beside a racer, until both outcomes were seen."""

    def __init__(self, scratch: Path, outside: Path, uid: int) -> None:
        (scratch / BEACON).write_text("here")
        os.chown(scratch / BEACON, USER, USER)
        self.precious = scratch / PRECIOUS
        self.precious.mkdir(0o700)
        self.leftover = ".nfs0001"
        (self.precious / self.leftover).write_text("another program's")
        os.utime(self.precious / self.leftover, (0, 0))
        self.reasons: Counter[str] = Counter()
        self.outcomes: list[Outcome] = []
        self._scratch, self._outside, self._uid = scratch, outside, uid

    def run(self, seconds: float, seed: int, *settings: dict[str, str]) -> None:
        """Run with each of the settings in turn; `seconds` at least."""
        paths = (self._outside, self._outside / "secret", self._outside / "trap")
        with Watch(*paths) as watch, Racer(self._scratch, self._outside, self._uid, seed):
            began = time.monotonic()
            while time.monotonic() - began < MOST_SECONDS:
                for wanted in settings:
                    found = Outcome(self._scratch, None, **wanted)
                    self.reasons[found.reason] += 1
                    self.check(found)
                    assert watch.events() == []
                enough = self.reasons[""] > 20 and self.reasons["interference"] > 20
                if enough and time.monotonic() - began > seconds:
                    break
        assert self.reasons[""] > 20, self.reasons
        assert self.reasons["interference"] > 20, self.reasons

    def check(self, found: Outcome) -> None:
        """No run blames the mount."""
        assert found.reason in ("", "interference"), found.message
        assert found.values.get("content_mismatches_total", 0) == 0
        assert 0 not in [found.values.get(name) for name in KNOWN], found.message


def race_of_another_user(scratch: Path, outside: Path, seconds: float, seed: int) -> Race:
    """Attack with a second user, in both kinds of access."""
    race = Race(scratch, outside, USER)
    race.run(seconds, seed, {"access": "write"}, {"access": "read", "file": BEACON})
    kept = [
        place / race.leftover for place in scratch.iterdir() if (place / race.leftover).exists()
    ]
    assert len(kept) == 1, "a file of root that was moved to the probe's directory is gone"
    return race


def race_inside(scratch: Path, outside: Path, seconds: float, seed: int) -> Race:
    """Attack with the agent's own uid, in the probe's own directory."""
    race = Race(scratch, outside, os.getuid())
    race.run(seconds, seed, {"access": "write"})
    return race


@pytest.mark.proof("mount_race")
def test_another_user_can_only_interfere(scratch: Path, outside: Path) -> None:
    race_of_another_user(scratch, outside, RACE_SECONDS, seed=1)


def test_file_that_is_replaced_between_write_and_read_is_interference(
    scratch: Path, outside: Path
) -> None:
    race_inside(scratch, outside, RACE_SECONDS, seed=1)


def put(place: Path, kind: str, outside: Path) -> None:
    """Put something in the place of the probe's directory."""
    if kind == "fifo":
        os.mkfifo(place)
    elif kind == "file":
        place.write_text("")
    elif kind == "link":
        place.symlink_to(outside)
    elif kind == "mount":
        place.mkdir(0o700)
        subprocess.run(["mount", "-t", "tmpfs", "other", place], check=True)
    else:
        uid, mode = kind.split()
        place.mkdir()
        os.chown(place, int(uid), int(uid))
        place.chmod(int(mode, 8))


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        ("fifo", "is a FIFO, not a directory"),
        ("file", "is a regular file, not a directory"),
        ("link", "is a symbolic link, not a directory"),
        ("mount", "is a mount point"),
        ("12345 0700", "belongs to uid 12345, files of the agent to uid 0"),
        ("12345 0777", "belongs to uid 12345, files of the agent to uid 0"),
        ("0 0777", "has mode 0777, not 0700"),
        ("0 0750", "has mode 0750, not 0700"),
    ],
)
def test_directory_that_is_not_the_agents_is_not_used(
    scratch: Path, outside: Path, kind: str, text: str
) -> None:
    put(scratch / OWN, kind, outside)
    before = os.lstat(scratch / OWN)
    assert f".nodevitals {text}" in interference(Outcome(scratch, access="write"))
    after = os.lstat(scratch / OWN)
    assert (after.st_ino, after.st_mode, after.st_uid) == (
        before.st_ino,
        before.st_mode,
        before.st_uid,
    )
    assert set(os.listdir(outside)) == {"secret", "trap"}
    assert kind in ("file", "fifo", "link") or os.listdir(scratch / OWN) == []


def test_directory_that_the_probe_makes_is_closed_to_others(scratch: Path) -> None:
    assert Outcome(scratch, access="write").reason == ""
    status = os.stat(scratch / OWN)
    assert (status.st_uid, status.st_mode & 0o777) == (os.getuid(), 0o700)


def test_posix_acl_that_is_inherited_gives_no_user_access(scratch: Path) -> None:
    """A default ACL of the mount point that lets a user write everywhere (acl(5))."""
    entries = [(tag, 7, USER if tag == 2 else 0xFFFFFFFF) for tag in (1, 2, 4, 0x10, 0x20)]
    packed = b"".join(
        tag.to_bytes(2, "little") + mode.to_bytes(2, "little") + uid.to_bytes(4, "little")
        for tag, mode, uid in entries
    )
    os.setxattr(scratch, "system.posix_acl_default", (2).to_bytes(4, "little") + packed)
    assert Outcome(scratch, access="write").reason == ""
    probe = ["setpriv", f"--reuid={USER}", "--clear-groups", "touch", f"{OWN}/intruder"]
    done = subprocess.run(probe, cwd=scratch, stderr=subprocess.DEVNULL, check=False)
    assert done.returncode != 0


@pytest.mark.parametrize("kind", ["link", "fifo", "fifo link", "device", "device link", "folder"])
def test_only_a_regular_file_is_read(scratch: Path, outside: Path, kind: str) -> None:
    """A device is not even opened: opening a watchdog starts it."""
    beacon = scratch / BEACON
    if kind == "device":
        os.mknod(beacon, 0o666 | 0o020000, os.makedev(1, 8))
    elif kind == "fifo":
        os.mkfifo(beacon)
    elif kind == "folder":
        beacon.mkdir()
    else:
        targets = {"link": "secret", "fifo link": "trap", "device link": "/dev/random"}
        beacon.symlink_to(outside / targets[kind])
    with Watch(outside, outside / "secret", outside / "trap") as watch:
        assert "not a regular file" in interference(Outcome(scratch, file=BEACON))
        assert watch.events() == []
    if kind in ("device", "fifo"):
        with Watch(beacon) as watch:
            interference(Outcome(scratch, file=BEACON))
            assert watch.events() == []


def test_lease_on_the_file_does_not_delay_the_probe(scratch: Path) -> None:
    beacon = scratch / BEACON
    beacon.write_text("here")
    before = signal.signal(signal.SIGIO, signal.SIG_IGN)
    with beacon.open("r+") as held:
        fcntl.fcntl(held, fcntl.F_SETLEASE, fcntl.F_WRLCK)
        assert "lease" in interference(Outcome(scratch, file=BEACON))
    signal.signal(signal.SIGIO, before)
    assert Outcome(scratch, file=BEACON).reason == ""


def test_file_on_another_mount_is_not_read(scratch: Path, outside: Path) -> None:
    (scratch / BEACON).write_text("")
    subprocess.run(["mount", "--bind", outside / "secret", scratch / BEACON], check=True)
    assert "is a mount point" in interference(Outcome(scratch, file=BEACON))


def test_nothing_is_made_below_a_mount_point_that_was_unmounted(tmp_path: Path) -> None:
    """Mountinfo listed a mount; before the probe opened the path, it was unmounted."""
    readings = Readings()
    access = MountAccess(readings, (str(tmp_path), "nfs4", "filer:/x"), str(tmp_path), frozenset())
    with pytest.raises(Exception, match="was unmounted during this run") as raised:
        access.statvfs("write")
    access.close()
    assert getattr(raised.value, "reason", "") == "missing"
    assert list(tmp_path.iterdir()) == []
    assert {sample.labels[-1] for sample in readings.samples} == {"statvfs"}


def test_runs_keep_no_descriptor(scratch: Path) -> None:
    (scratch / BEACON).write_text("here")
    settings = [{"access": "write"}, {"access": "read"}, {"file": BEACON}, {"file": "gone"}]
    before = len(os.listdir("/proc/self/fd"))
    for wanted in settings:
        Outcome(scratch, None, **wanted)
    (scratch / OWN).chmod(0o777)
    Outcome(scratch, access="write")
    assert len(os.listdir("/proc/self/fd")) == before


# File servers: other clients, and owners that are treated in other ways.


def test_file_that_another_client_replaces_is_no_stale_handle(tmp_path: Path) -> None:
    with FaultyFileSystem(tmp_path) as filer:
        (filer.backing / BEACON).write_text("here")
        filer.fault("replaced")
        assert "was replaced" in interference(Outcome(filer.mountpoint, file=BEACON))
        filer.fault("estale")
        assert Outcome(filer.mountpoint, file=BEACON).reason == "stale_handle"


@pytest.fixture
def squashing(tmp_path: Path) -> Iterator[FaultyFileSystem]:
    with FaultyFileSystem(tmp_path, owners="squashed") as mounted:
        mounted.backing.chmod(0o1777)
        yield mounted


def test_files_of_the_anonymous_user_are_the_agents(squashing: FaultyFileSystem) -> None:
    for _ in range(2):
        assert Outcome(squashing.mountpoint, access="write").reason == ""
    assert os.stat(squashing.backing / OWN).st_uid == ANONYMOUS
    squashing.fault("corrupt")
    found = Outcome(squashing.mountpoint, access="write")
    assert (found.reason, found.values["content_mismatches_total"]) == ("mismatch", 1)
    for fault, reason in (("edquot", "quota"), ("enospc", "disk_full"), ("eacces", "permission")):
        squashing.fault(fault)
        found = Outcome(squashing.mountpoint, access="write")
        assert (found.reason, found.values["writable"]) == (reason, 0)


@pytest.mark.parametrize("mode", [0o700, 0o755, 0o777])
def test_directory_of_a_user_on_a_squashing_server_is_interference(
    squashing: FaultyFileSystem, mode: int
) -> None:
    put(squashing.backing / OWN, f"{USER} {mode:o}", Path())
    text = interference(Outcome(squashing.mountpoint, access="write"))
    assert f"belongs to uid {USER}, files of the agent to uid {ANONYMOUS}" in text
    assert os.listdir(squashing.backing) == [OWN]
    folder = squashing.backing / OWN  # the server renames what is removed before its release
    wait_until(lambda: os.listdir(folder) == [], what="an empty folder")


def test_directory_that_was_made_for_the_anonymous_user_is_used(
    squashing: FaultyFileSystem,
) -> None:
    """The agent may write nowhere else on the mount."""
    put(squashing.backing / OWN, f"{ANONYMOUS} 700", Path())
    squashing.backing.chmod(0o755)
    assert Outcome(squashing.mountpoint, access="write").reason == ""


def test_mount_that_squashes_and_permits_nothing_is_not_writable(
    squashing: FaultyFileSystem,
) -> None:
    squashing.backing.chmod(0o755)
    found = Outcome(squashing.mountpoint, access="write")
    assert (found.reason, found.values["writable"]) == ("permission", 0)


@pytest.mark.parametrize("fault", ["corrupt", "short"])
def test_without_owners_a_difference_is_not_called_corruption(tmp_path: Path, fault: str) -> None:
    with FaultyFileSystem(tmp_path, owners="none") as filer:
        found = Outcome(filer.mountpoint, access="write")
        assert (found.reason, found.values["content_intact"]) == ("", 1)
        filer.fault(fault)
        found = Outcome(filer.mountpoint, access="write")
        assert found.reason == "interference"
        assert "content_intact" not in found.values
        assert (found.values["content_mismatches_total"], found.values["writable"]) == (0, 1)
        filer.fault("enospc")
        assert Outcome(filer.mountpoint, access="write").reason == "disk_full"
