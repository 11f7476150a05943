"""The paths of the node's file systems, its boot ID and name, and the clock."""

from __future__ import annotations

import hashlib
import os
import re
import time
from pathlib import Path

import msgspec

from nodevitals.linux.sysfs import read_text

BOOT_ID = "sys/kernel/random/boot_id"
_BOOT_ID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")


class Host(msgspec.Struct, frozen=True, kw_only=True):
    """Mount points of the node's file systems: `--path.rootfs`, `--path.procfs`, `--path.sysfs`."""

    rootfs: str = "/"
    procfs: str = "/proc"
    sysfs: str = "/sys"

    def root(self, path: str) -> str:
        """An absolute path of the node as a path of this process. It is joined and not resolved:
        resolving a path on a hung mount hangs.
        """
        return path if self.rootfs == "/" else self.rootfs.rstrip("/") + path

    def proc(self, path: str) -> Path:
        """A file of the node's procfs."""
        return Path(self.procfs, path)

    def sys(self, path: str) -> Path:
        """A file of the node's sysfs."""
        return Path(self.sysfs, path)

    def boot_id(self) -> str:
        """The kernel's identifier of this boot; '' where it cannot be read."""
        text = read_text(self.proc(BOOT_ID)) or ""
        return text if _BOOT_ID.fullmatch(text) else ""


def node_name() -> str:
    """The node's name: $NODE_NAME, which the chart sets, or the kernel's host name. No name service
    is used.
    """
    return os.environ.get("NODE_NAME") or os.uname().nodename


def stable_fraction(*parts: str) -> float:
    """A number in [0, 1) that depends on these words alone: spreads runs over nodes and targets."""
    digest = hashlib.blake2b("\0".join(parts).encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") / 2**64


class Clock:
    """The clocks of this machine; tests use others."""

    def monotonic(self) -> float:
        """Seconds of the monotonic clock; all schedules and deadlines use it."""
        return time.monotonic()

    def time(self) -> float:
        """Unix time in seconds; all timestamps in metrics and in the history use it."""
        return time.time()
