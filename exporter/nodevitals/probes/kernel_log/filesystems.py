"""File systems that the kernel has reported to accept no writes, until it mounts them anew.

In: messages of the log. Out: the kernel's name of the block device. Of XFS, and of ext4 on some
kernels (nodevitals/probes/services/ext4.py), the mount's options show nothing of it.
"""

from __future__ import annotations

import re
from typing import NamedTuple

MAX_FILESYSTEMS = 64
_STOPPED = re.compile(
    r"EXT4-fs \((\S+)\): (?:Remounting filesystem read-only|shut down requested)"
    r"|XFS \((\S+)\): .*(?:Shutting down filesystem|has been shut down)"
)
# A file system that was stopped can only be unmounted: a remount is refused.
_MOUNTED = re.compile(r"(?:EXT4-fs|XFS) \((\S+)\): (?:mounted|Mounting|unmounting|Unmounting) ")


class FilesystemEvent(NamedTuple):
    """A device, and whether its file system was stopped; else it is mounted anew, or no longer."""

    device: str
    stopped: bool


def parse_filesystem_event(text: str) -> FilesystemEvent | None:
    """The event that a message reports; None for most."""
    if not text.startswith(("EXT4-fs (", "XFS (")):
        return None
    found = _STOPPED.match(text)
    if found is not None:
        return FilesystemEvent(found[1] or found[2], stopped=True)
    found = _MOUNTED.match(text)
    return None if found is None else FilesystemEvent(found[1], stopped=False)


def follow(stopped: list[str], event: FilesystemEvent) -> None:
    """Bring a list of devices up to date."""
    if event.stopped:
        if event.device not in stopped and len(stopped) < MAX_FILESYSTEMS:
            stopped.append(event.device)
    elif event.device in stopped:
        stopped.remove(event.device)
