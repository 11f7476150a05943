"""Finds local file systems that were mounted for writing and accept no writes now.

In: mountinfo of the node's first process. Out: one record per file system. Pure.
https://man7.org/linux/man-pages/man5/proc_pid_mountinfo.5.html

ext4 records its errors, and whether it has stopped writes for one, in sysfs and procfs. Where
errors=remount-ro holds, an error stops all writes (EROFS). Linux 6.12 to 6.14, and 5.15, 6.1 and
6.6 with the same change, then leave the mount `rw`, without the word `emergency_ro` that later ones
show; access(2) and statvfs(3) do not know of it either.
https://git.kernel.org/torvalds/c/d3476f3dad4a (ext4: don't set SB_RDONLY after filesystem errors)
https://www.kernel.org/doc/Documentation/ABI/testing/sysfs-fs-ext4
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import NamedTuple, Optional

import msgspec

from nodevitals.linux.process import seconds_since_start
from nodevitals.linux.sysfs import read_integer, read_text, unescape
from nodevitals.probe import Host

# The ext4 driver also mounts ext2 and ext3.
TYPES = ("ext2", "ext3", "ext4")


class Record(NamedTuple):
    """The number of errors since the last check by e2fsck, over mounts and boots, and whether one
    of them has stopped the writes to this mount, by the option that holds now: a remount may have
    changed it after the error.
    """

    errors: int
    stopped: bool


def device_name(host: Host, number: str) -> Optional[str]:
    """The kernel's name of the block device MAJOR:MINOR; None if it has none."""
    try:
        return os.path.basename(os.readlink(host.sys(f"dev/block/{number}")))
    except OSError:
        return None


def read_record(host: Host, name: str, now: float) -> Optional[Record]:
    """The error record of the file system on a device; None if it has none. `now` is Unix time."""
    folder = host.sys(f"fs/ext4/{name}")
    errors = read_integer(folder / "errors_count")
    if errors is None:
        return None
    if not errors or not _stops_writes(read_text(host.proc(f"fs/ext4/{name}/options")) or ""):
        return Record(errors, stopped=False)
    last = read_integer(folder / "last_error_time")
    # Each mount starts a thread for its journal.
    thread = read_integer(folder / "journal_task")
    age = None if thread is None else seconds_since_start(host.procfs, thread)
    return Record(errors, stopped=in_this_mount(last, age, now))


def _stops_writes(options: str) -> bool:
    """Whether an error makes the file system read-only, by the effective options of the mount and
    the superblock.
    """
    return "errors=remount-ro" in options.splitlines()


def in_this_mount(last: Optional[int], age: Optional[float], now: float) -> bool:
    """Whether the last error, at a Unix time in whole seconds, happened within a mount of this age
    in seconds. False if that is unknown, and for a time in the future.
    """
    return last is not None and age is not None and now - age < last <= now


LOCAL = ("ext2", "ext3", "ext4", "xfs", "btrfs", "f2fs", "jfs", "reiserfs")
MAX_FILESYSTEMS = 64
# Mounts of containers and volumes: the runtime creates and removes them.
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
    """Whether it is mounted for writing somewhere, even if it accepts no writes now."""


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
    filesystems = []
    for device, mounts in by_device.items():
        main = min(mounts, key=lambda filesystem: len(filesystem.mountpoint))
        read_only = any(mount.filesystem_read_only for mount in mounts)
        for_writing = any(not mount.mounted_read_only for mount in mounts)
        filesystems.append(
            LocalFilesystem(
                device, main.mountpoint, main.fstype, main.source, read_only, for_writing
            )
        )
    filesystems.sort(key=lambda filesystem: len(filesystem.mountpoint))
    return filesystems[:MAX_FILESYSTEMS]
