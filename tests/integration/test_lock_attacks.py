"""Lock files in directories that other users may write to: no user can hold the lock, delay its
opening, or have root make or open anything elsewhere.
"""

from __future__ import annotations

import os
import stat
import subprocess
import sys
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path

import pytest

from nodevitals.linux.host import Host
from nodevitals.probe import ProbeError
from nodevitals.probes.ascend.runner import LockFile
from testbed.inotify import Watch
from testbed.racer import LOCK, Racer

USER = 12345
RACE_SECONDS = 2.0
MOST_SECONDS = 60.0
HOLD = """
import fcntl, sys
file = open(sys.argv[1])
fcntl.flock(file, fcntl.LOCK_EX)
print("held", flush=True)
sys.stdin.read()
"""


def locks_of(folder: Path, mode: int) -> Path:
    """Make a directory for locks, and return the path of one."""
    locks = folder / "locks"
    locks.mkdir()
    locks.chmod(mode)
    for parent in (folder, *folder.parents[:-2]):
        parent.chmod(parent.stat().st_mode | 0o011)  # for the other user
    return locks / LOCK


def outside_of(folder: Path) -> Path:
    """Make what is not in the directory: a file and a FIFO."""
    outside = folder / "outside"
    outside.mkdir()
    (outside / "secret").write_text("secret")
    os.mkfifo(outside / "trap", 0o666)
    return outside


def race(folder: Path, seconds: float, seed: int) -> Counter[str]:
    """Take a lock again and again beside a user who interferes; return how often, and how often it
    was refused. The file is removed each time: afterwards the user cannot remove it.
    """
    path, outside = locks_of(folder, 0o1777), outside_of(folder)
    outcomes: Counter[str] = Counter()
    with (
        Watch(outside, outside / "secret", outside / "trap") as watch,
        Racer(path.parent, outside, USER, seed),
    ):
        began = time.monotonic()
        while time.monotonic() - began < MOST_SECONDS:
            outcomes[take(path)] += 1
            assert watch.events() == []
            with suppress(OSError):
                path.unlink()
            enough = outcomes["held"] > 20 and outcomes["lock"] > 20
            if enough and time.monotonic() - began > seconds:
                break
    return outcomes


def take(path: Path) -> str:
    """Take the lock and release it: `held`, or the reason."""
    try:
        lock = LockFile(str(path))
    except ProbeError as error:
        return error.reason
    assert lock.try_lock()
    status = os.fstat(lock.descriptor)
    assert (status.st_uid, status.st_mode) == (os.getuid(), stat.S_IFREG | 0o600)
    lock.close()
    return "held"


@pytest.mark.proof("lock_race")
def test_user_can_only_have_a_lock_refused(tmp_path: Path) -> None:
    outcomes = race(tmp_path, RACE_SECONDS, seed=1)
    assert outcomes.keys() == {"held", "lock"}
    assert min(outcomes.values()) > 20, outcomes


@pytest.mark.parametrize("kind", ["link", "fifo", "folder", "user's", "hard link", "in a folder"])
def test_what_is_in_the_place_of_a_lock_file_is_not_used(tmp_path: Path, kind: str) -> None:
    path, outside = locks_of(tmp_path, 0o1777), outside_of(tmp_path)
    if kind == "link":
        path.symlink_to(outside / "made by root")
    elif kind == "fifo":
        os.mkfifo(path)
    elif kind == "folder":
        path.mkdir()
    elif kind == "hard link":
        path.hardlink_to(outside / "secret")
    elif kind == "in a folder":
        path = path / LOCK
        path.parent.mkdir()
        os.chown(path.parent, USER, USER)
    else:
        path.touch()
        os.chown(path, USER, USER)
    assert take(path) == "lock"
    assert set(os.listdir(outside)) == {"secret", "trap"}
    assert stat.S_IMODE((outside / "secret").stat().st_mode) == 0o644


def test_directory_that_every_user_may_write_to_without_the_sticky_bit_is_refused(
    tmp_path: Path,
) -> None:
    assert take(locks_of(tmp_path, 0o777)) == "lock"
    assert os.listdir(tmp_path / "locks") == []


def test_user_cannot_hold_a_lock(tmp_path: Path) -> None:
    path = locks_of(tmp_path, 0o1777)
    assert take(path) == "held"
    # From inside the directory: the folder of all pytests may be closed to other users.
    hold = [sys.executable, "-S", "-c", HOLD, path.name]
    command = ["setpriv", f"--reuid={USER}", "--clear-groups", *hold]
    done = subprocess.run(
        command, cwd=path.parent, stdin=subprocess.DEVNULL, capture_output=True, check=False
    )
    assert (done.returncode, done.stdout) == (1, b"")
    assert b"PermissionError" in done.stderr
    assert take(path) == "held"


def test_holder_and_its_age_come_from_the_kernel(tmp_path: Path) -> None:
    path = locks_of(tmp_path, 0o755)
    lock = LockFile(str(path))
    hold = [sys.executable, "-S", "-c", HOLD, str(path)]
    with subprocess.Popen(hold, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"held\n"
        os.utime(path, (0, 0))
        assert not lock.try_lock()
        found = lock.holder(Host())
        assert found is not None
        assert found.pid == process.pid
        assert 0 <= found.seconds < time.monotonic()
        process.communicate()
    assert lock.holder(Host()) is None
    assert lock.try_lock()
    lock.close()


def test_lock_file_that_was_removed_is_not_taken(tmp_path: Path) -> None:
    path = locks_of(tmp_path, 0o755)
    first, second = LockFile(str(path)), LockFile(str(path))
    assert first.try_lock()
    second.remove()
    third = LockFile(str(path))
    assert third.try_lock()
    first.close()
    assert not second.try_lock()
    third.close()
    second.close()
