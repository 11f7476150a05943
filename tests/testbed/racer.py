"""A user who interferes with the probe `mounts` on a mount that every user may write to.

`Racer(mount, outside, uid)` is a context manager around a process of that user. Round after round,
it puts directories, links, FIFOs, sparse files and leases in the place of what the probe uses, and
directories of root in the place of the probe's. With the uid of the agent it works inside the
probe's directory as well, as a process of the anonymous user of a file server can. In a directory
with the name `locks` it interferes with a lock file. Run as a program:
`python -S racer.py MOUNT OUTSIDE UID SEED`.
"""

from __future__ import annotations

import fcntl
import os
import random
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

OWN = ".nodevitals"
LOCK = "npu-smi.lock"
BEACON = "beacon"
PRECIOUS = "backup"
MAX_SECONDS = 300  # it ends by itself where its parent does not end it


class Racer:
    """The process, which ends with the context."""

    def __init__(self, mount: Path, outside: Path, uid: int, seed: int = 1) -> None:
        self._argv = [sys.executable, "-S", __file__, *map(str, (mount, outside, uid, seed))]

    def __enter__(self) -> Racer:
        self._process = subprocess.Popen(self._argv)
        return self

    def __exit__(self, *_: object) -> None:
        ended = self._process.poll()
        self._process.kill()
        self._process.wait()
        assert ended is None, f"the racer ended with {ended}"


class Attack:
    """One user's ways to interfere, each a method without arguments."""

    def __init__(self, outside: str, chance: random.Random) -> None:
        self._outside = outside
        self._chance = chance
        self._lease = -1

    def thing(self) -> str:
        """Make something that is no file of the probe, under a name of its own."""
        name = f"thing.{os.getpid()}"
        with suppress(OSError):
            os.unlink(name)
        with suppress(OSError):
            os.rmdir(name)
        kind = self._chance.choice(
            ("file", "sparse", "fifo", "link", "fifo link", "hard", "folder")
        )
        if kind in ("file", "sparse"):
            with open(name, "wb") as file:
                file.write(bytes(64))
                file.truncate(2**40 if kind == "sparse" else 65536)
        elif kind == "fifo":
            os.mkfifo(name, 0o666)
        elif kind == "hard":
            os.link("other", name)
        elif kind == "folder":
            os.mkdir(name, 0o777)
        else:
            target = "trap" if kind == "fifo link" else self._chance.choice(("", "secret"))
            os.symlink(f"{self._outside}/{target}", name)
        return name

    def take_the_place(self) -> None:
        """Put something in the place of the probe's directory."""
        with suppress(OSError):
            os.rename(OWN, f"aside.{self._chance.randrange(4)}")
        os.rename(self.thing(), OWN)
        os.chmod(OWN, self._chance.choice((0o700, 0o777)))

    def make_first(self) -> None:
        """Make the probe's directory."""
        os.mkdir(OWN, self._chance.choice((0o700, 0o777)))

    def move_in(self) -> None:
        """Move a directory of root, or one that was moved away, to where the probe's is."""
        with suppress(OSError):
            os.rename(OWN, "aside.0")
        os.rename(self._chance.choice((PRECIOUS, "aside.0", "aside.1")), OWN)

    def move_back(self) -> None:
        """Move root's directory back, and remove the probe's where it is empty."""
        if os.path.exists(f"{OWN}/.nfs0001") or not os.path.exists(PRECIOUS):
            os.rename(OWN, PRECIOUS)
        os.rmdir(OWN)

    def clean(self) -> None:
        """Remove what is in the way, so that the probe has its turn."""
        for name in (OWN, *(f"aside.{number}" for number in range(4))):
            with suppress(OSError):
                os.unlink(name)
            with suppress(OSError):
                os.rmdir(name)

    def swap_beacon(self) -> None:
        """Put something else in the place of the file that is read; it is never missing."""
        name = self.thing()
        with suppress(IsADirectoryError):
            os.rename(name, BEACON)

    def lease_beacon(self) -> None:
        """Hold a lease on the file that is read: an opening without O_NONBLOCK waits 45 s."""
        if self._lease >= 0:
            os.close(self._lease)
            self._lease = -1
            return
        with open("thing.lease", "wb") as file:
            file.write(b"leased")
        os.rename("thing.lease", BEACON)
        self._lease = os.open(BEACON, os.O_WRONLY)
        fcntl.fcntl(self._lease, fcntl.F_SETLEASE, fcntl.F_WRLCK)

    def swap_inside(self) -> None:
        """Replace the probe's file while it is written and read back."""
        thing = self.thing()
        while True:
            for name in os.listdir(OWN):
                if name.endswith(".probe"):
                    os.rename(thing, f"{OWN}/{name}")
                    return

    def place_lock(self) -> None:
        """Put something in the place of the lock file; what is its own it removes first."""
        with suppress(OSError):
            os.unlink(LOCK)
        os.rename(self.thing(), LOCK)

    def hold_lock(self) -> None:
        """Hold the lock, also of a file that it may only read."""
        if self._lease >= 0:
            os.close(self._lease)
            self._lease = -1
        self._lease = os.open(LOCK, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW)
        fcntl.flock(self._lease, fcntl.LOCK_EX | fcntl.LOCK_NB)


def main(mount: str, outside: str, uid: str, seed: str) -> None:
    """Interfere until the end."""
    signal.alarm(MAX_SECONDS)
    signal.signal(signal.SIGIO, signal.SIG_IGN)  # the end of a lease
    own_uid = os.getuid() == int(uid)
    # Each pytest that starts closes the folder of all of them to other users.
    os.chdir(mount)
    if not own_uid:
        os.setgroups([])
        os.setresgid(int(uid), int(uid), int(uid))
        os.setresuid(int(uid), int(uid), int(uid))
    os.umask(0)
    chance = random.Random(int(seed))
    attack = Attack(outside, chance)
    with open("other", "wb") as file:
        file.write(bytes(65536))
    ways = [attack.take_the_place, attack.make_first, attack.move_in, attack.move_back]
    ways += [attack.clean, attack.swap_beacon, attack.swap_beacon, attack.lease_beacon]
    if Path(mount).name == "locks":
        ways = [attack.place_lock, attack.hold_lock]
    while True:
        with suppress(OSError):
            (attack.swap_inside if own_uid else chance.choice(ways))()


if __name__ == "__main__":
    main(*sys.argv[1:])
