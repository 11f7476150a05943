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

import msgspec

from nodevitals.linux.sysfs import list_names
from nodevitals.probes.nvidia.nvml import NO_PERMISSION, NOT_FOUND, Failure

FOLDER = Path("/dev")
MAJOR = 195
"""The major number of these device files: NV_MAJOR_DEVICE_NUMBER of the driver."""
_NAME = re.compile(r"nvidia\d+")


class DeviceNodes(msgspec.Struct, frozen=True):
    """How many device files of GPUs there are, and how many of them this process may open."""

    present: int
    usable: int

    def refusal(self, wanted: int) -> Failure | None:
        """Why not all of so many GPUs can be opened; None where they can. It is not known which GPU
        a file belongs to.
        """
        if self.usable >= wanted:
            return None
        if self.usable < self.present:
            text = f"{self.usable} of {self.present} device files /dev/nvidia* can be opened"
            return Failure(NO_PERMISSION, text)
        # A container gets no file of a GPU that was dead when it was made.
        text = f"{self.present} device files /dev/nvidia* are there for {wanted} GPUs"
        return Failure(NOT_FOUND, text)


def read_nodes() -> DeviceNodes:
    """Count the device files."""
    paths = [FOLDER / name for name in filter(_NAME.fullmatch, list_names(FOLDER))]
    present = [path for path in paths if _is_gpu(path)]
    return DeviceNodes(len(present), sum(map(_may_open, present)))


def _is_gpu(path: Path) -> bool:
    try:
        status = path.stat()
    except OSError:
        return False
    return stat.S_ISCHR(status.st_mode) and os.major(status.st_rdev) == MAJOR


def _may_open(path: Path) -> bool:
    """The kernel asks the cgroup of devices in access(2), too, and the mount's option only in
    open(2).
    """
    try:
        if os.statvfs(path).f_flag & os.ST_NODEV:
            return False
    except OSError:
        return False
    # The filter of system calls of an older container runtime denies faccessat2(2), which the first
    # of them is.
    mode = os.R_OK | os.W_OK
    return os.access(path, mode, effective_ids=True) or os.access(path, mode)
