"""What ext4 has recorded of its errors, and whether it has stopped writes for one.

In: sysfs and procfs of the node; the kernel's name of a block device. Out: a Record.

Where errors=remount-ro holds, an error stops all writes (EROFS). Linux 6.12 to 6.14, and 5.15, 6.1
and 6.6 with the same change, then leave the mount `rw`, without the word `emergency_ro` that later
ones show; access(2) and statvfs(3) do not know of it either.
https://git.kernel.org/torvalds/c/d3476f3dad4a (ext4: don't set SB_RDONLY after filesystem errors)
https://www.kernel.org/doc/Documentation/ABI/testing/sysfs-fs-ext4
"""

from __future__ import annotations

import os
from typing import NamedTuple, Optional

from nodevitals.linux.process import seconds_since_start
from nodevitals.linux.sysfs import read_integer, read_text
from nodevitals.probe import Host

# Drivers of ext2 and ext3 are ext4's.
TYPES = ("ext2", "ext3", "ext4")


class Record(NamedTuple):
    """The number of errors since the last check by e2fsck, over mounts and boots, and whether one
    of them has stopped the writes to this mount, by the option that holds now: a remount may have
    changed it after the error.
    """

    errors: int
    stopped: bool


def device_name(host: Host, number: str) -> Optional[str]:
    """The kernel's name of the block device MAJOR:MINOR; None where it has none."""
    try:
        return os.path.basename(os.readlink(host.sys(f"dev/block/{number}")))
    except OSError:
        return None


def read_record(host: Host, name: str, now: float) -> Optional[Record]:
    """What the file system on a device has recorded; None where it does not show it. `now` is Unix
    time.
    """
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
    """Whether an error makes it read-only, by the options that hold: those of the mount, and the
    superblock's.
    """
    return "errors=remount-ro" in options.splitlines()


def in_this_mount(last: Optional[int], age: Optional[float], now: float) -> bool:
    """Whether the last error, at a Unix time in whole seconds, is of a mount of this age in
    seconds. False where that is not known, and for a time of a clock that was ahead.
    """
    return last is not None and age is not None and now - age < last <= now
