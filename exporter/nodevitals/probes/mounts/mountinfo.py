"""/proc/PID/mountinfo as records. Pure: text in, mounts out.

https://man7.org/linux/man-pages/man5/proc_pid_mountinfo.5.html
"""

from __future__ import annotations

import re

import msgspec

from nodevitals.linux.sysfs import unescape

_NUMBER = re.compile(r"[0-9]{1,10}")


class Mount(msgspec.Struct, frozen=True):
    """One mount. `read_only`: the mount or its file system is; `identity`: the kernel's mount
    ID.
    """

    mountpoint: str
    fstype: str
    source: str
    read_only: bool
    identity: int


def parse_mountinfo(text: str) -> list[Mount]:
    """The mounts of a mountinfo file in its order; lines of another format are skipped."""
    mounts = []
    for line in text.splitlines():
        fields = line.split(" ")
        if "-" not in fields[6:] or not _NUMBER.fullmatch(fields[0]):
            continue
        tail = fields[fields.index("-", 6) + 1 :]
        if len(tail) < 3:
            continue
        options = {*fields[5].split(","), *tail[2].split(",")}
        mountpoint, source = unescape(fields[4]), unescape(tail[1])
        mounts.append(Mount(mountpoint, tail[0], source, "ro" in options, int(fields[0])))
    return mounts


def find_mount(mounts: list[Mount], path: str) -> Mount | None:
    """The topmost mount at a mount point, which is listed last; None if there is none."""
    return next((mount for mount in reversed(mounts) if mount.mountpoint == path), None)


def mount_ids(mounts: list[Mount], path: str) -> frozenset[int]:
    """The identifiers of everything that is mounted at a mount point, one above the other."""
    return frozenset(mount.identity for mount in mounts if mount.mountpoint == path)
