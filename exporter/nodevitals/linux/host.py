"""The only door to the machine: where its files are, what time it is, which boot this is."""

from __future__ import annotations

import hashlib
import os
import time
from pathlib import Path

import msgspec


class Host(msgspec.Struct, frozen=True, kw_only=True):
    """Where the node's trees are mounted, as `--path.rootfs`, `--path.procfs`, `--path.sysfs`."""

    rootfs: str = "/"
    procfs: str = "/proc"
    sysfs: str = "/sys"

    def root(self, path: str) -> str:
        """An absolute path of the node, as this process must spell it. Joined, never resolved:
        resolving a path on a hung mount hangs.
        """
        return path if self.rootfs == "/" else self.rootfs.rstrip("/") + path

    def proc(self, path: str) -> Path:
        """A file below the node's procfs."""
        return Path(self.procfs, path)

    def sys(self, path: str) -> Path:
        """A file below the node's sysfs."""
        return Path(self.sysfs, path)

    def boot_id(self) -> str:
        """The kernel's identity of this boot; '' where it does not tell."""
        try:
            return self.proc("sys/kernel/random/boot_id").read_text().strip()
        except OSError:
            return ""


def node_name() -> str:
    """The node's name without asking a name service: $NODE_NAME (set by the chart), or the
    kernel's host name.
    """
    return os.environ.get("NODE_NAME") or os.uname().nodename


def stable_fraction(*parts: str) -> float:
    """A number in [0, 1) that depends on these words alone: spreads runs over nodes and targets."""
    digest = hashlib.blake2b("\0".join(parts).encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") / 2**64


class Clock:
    """The time, so that tests can hold another one."""

    def monotonic(self) -> float:
        """Seconds that never jump; schedules and deadlines use only these."""
        return time.monotonic()

    def time(self) -> float:
        """Seconds since the epoch, for timestamps that people and PromQL read."""
        return time.time()
