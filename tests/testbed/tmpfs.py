"""Memory file systems of 1 MiB, for mounts that fill up, become read-only or go away."""

from __future__ import annotations

import subprocess
from pathlib import Path


def mount_tmpfs(point: Path) -> None:
    """Mount one; its source is named after its mount point."""
    source = f"scratch-{point.name}"
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", source, point], check=True)


def unmount(point: Path) -> None:
    """Unmount it where it is mounted."""
    subprocess.run(["umount", "-l", point], stderr=subprocess.DEVNULL, check=False)
