"""Local file systems that were mounted for writing and accept no writes now, by their mounts.

In: mountinfo of the node's first process. Out: one record per file system. Pure.
https://man7.org/linux/man-pages/man5/proc_pid_mountinfo.5.html
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from nodevitals.probes.common.mountinfo import unescape

LOCAL = ("ext2", "ext3", "ext4", "xfs", "btrfs", "f2fs", "jfs", "reiserfs")
MAX_FILESYSTEMS = 64
# Mounts of containers and volumes: they come and go, and are the runtime's.
_RUNTIMES = ("/var/lib/kubelet/", "/var/lib/containers/", "/var/lib/docker/", "/run/", "/snap/")
# What ext4 since Linux 6.15 shows after an error, and after a shutdown, instead of ro. Earlier ones
# and XFS show nothing: ext4.py, and the kernel's log.
_FORCED = {"emergency_ro", "shutdown"}


class LocalMount(msgspec.Struct, frozen=True):
    """A mount of a local file system: how it is mounted, and what the file system permits."""

    device: str
    mountpoint: str
    fstype: str
    source: str
    mounted_read_only: bool
    filesystem_read_only: bool


class LocalFilesystem(msgspec.Struct, frozen=True):
    """A local file system at its main mount point."""

    device: str
    mountpoint: str
    fstype: str
    source: str
    read_only: bool
    for_writing: bool
    """Whether it is mounted for writing somewhere, whatever it permits now."""


def parse_local_mounts(text: str) -> Iterator[LocalMount]:
    """The mounts of local file systems; lines of another format are skipped."""
    for line in text.splitlines():
        fields = line.split(" ")
        if "-" not in fields[6:]:
            continue
        tail = fields[fields.index("-", 6) + 1 :]
        if len(tail) < 3 or tail[0] not in LOCAL:
            continue
        options = set(tail[2].split(","))
        yield LocalMount(
            fields[2],
            unescape(fields[4]),
            tail[0],
            unescape(tail[1]),
            "ro" in fields[5].split(","),
            "ro" in options or not _FORCED.isdisjoint(options),
        )


def local_filesystems(text: str) -> list[LocalFilesystem]:
    """The file systems of a mountinfo file, each once: containers mount parts of them, too, and
    may do so read-only. The main mount point is the shortest.
    """
    by_device: dict[str, list[LocalMount]] = {}
    for mount in parse_local_mounts(text):
        if not mount.mountpoint.startswith(_RUNTIMES):
            by_device.setdefault(mount.device, []).append(mount)
    found = []
    for device, mounts in by_device.items():
        main = min(mounts, key=lambda one: len(one.mountpoint))
        read_only = any(mount.filesystem_read_only for mount in mounts)
        for_writing = any(not mount.mounted_read_only for mount in mounts)
        found.append(
            LocalFilesystem(
                device, main.mountpoint, main.fstype, main.source, read_only, for_writing
            )
        )
    found.sort(key=lambda one: len(one.mountpoint))
    return found[:MAX_FILESYSTEMS]
