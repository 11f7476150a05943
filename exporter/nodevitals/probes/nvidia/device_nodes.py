"""Whether the GPUs can be opened: their device files, /dev/nvidia0 and so on.

NVML leaves a GPU out of its list whose device file it cannot open, and says nothing about it: read
on driver 580. In a container that lost its devices, a healthy GPU is then missing like a dead one.
Opening the file of a dead GPU makes the driver initialize it, which may take seconds.
"""

from __future__ import annotations

import os
import re
import stat
from pathlib import Path

from nodevitals.linux.sysfs import list_names

_NAME = re.compile(r"nvidia\d+")
MAJOR = 195
"""The major number of these device files: NV_MAJOR_DEVICE_NUMBER of the driver."""


def usable_nodes(folder: Path = Path("/dev"), major: int = MAJOR) -> int:
    """How many of a folder's device files this process may open. An error of the driver itself is
    no refusal: that of a GPU that cannot be initialized.
    """
    names = filter(_NAME.fullmatch, list_names(folder))
    return sum(_may_open(folder / name, major) for name in names)


def _may_open(path: Path, major: int) -> bool:
    try:
        status = path.stat()
        if not stat.S_ISCHR(status.st_mode) or os.major(status.st_rdev) != major:
            return False
        os.close(os.open(path, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC))
    except (PermissionError, FileNotFoundError):  # EPERM is that of a cgroup
        return False
    except OSError:
        return True
    return True
