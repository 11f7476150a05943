"""Whether the GPUs may be opened: their device files, /dev/nvidia0 and so on.

NVML leaves a GPU out of its list whose device file it cannot open, and says nothing about it: read
on driver 580. In a container that lost its devices, a healthy GPU is then missing like a dead one.
No file is opened: the driver would initialize a dead GPU, which may take seconds.
"""

from __future__ import annotations

import os
import re
import stat
from pathlib import Path

from nodevitals.linux.sysfs import list_names

FOLDER = Path("/dev")
MAJOR = 195
"""The major number of these device files: NV_MAJOR_DEVICE_NUMBER of the driver."""
_NAME = re.compile(r"nvidia\d+")


def usable_nodes() -> int:
    """How many of the device files this process may open."""
    return sum(_may_open(FOLDER / name) for name in filter(_NAME.fullmatch, list_names(FOLDER)))


def _may_open(path: Path) -> bool:
    """The kernel asks the cgroup of devices in access(2), too, and the mount's option only in
    open(2).
    """
    try:
        status = path.stat()
        if not stat.S_ISCHR(status.st_mode) or os.major(status.st_rdev) != MAJOR:
            return False
        if os.statvfs(path).f_flag & os.ST_NODEV:
            return False
        return os.access(path, os.R_OK | os.W_OK, effective_ids=True)
    except OSError:
        return False
