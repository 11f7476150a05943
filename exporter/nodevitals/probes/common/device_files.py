"""Finds the accelerators whose device files a process has open, by procfs.

In: procfs. Out: vendor and number of device files. No driver is called, and no link is followed: a
file on a mount that hangs causes no delay. A container's device files have the same names.
"""

from __future__ import annotations

import errno
import os
import re
from typing import NamedTuple

from nodevitals.linux.process import parse_process_stat
from nodevitals.linux.sysfs import exists, read_text

# Monitoring programs keep the devices open for as long as they run. The kernel cuts the names of
# processes after 15 characters.
WATCHERS = (
    "nvidia-persiste",
    "nv-hostengine",
    "dcgm-exporter",
    "nvidia-smi",
    "nvidia-fabricma",
    "npu-exporter",
    "npu-smi",
    "dcmi",
)
_ACCELERATOR = re.compile(r"/dev/(nvidia|davinci)(\d{1,4})")
_VENDORS = {"nvidia": "nvidia", "davinci": "ascend"}
# Errors of the kernel for a process or an open file that is gone.
_ENDED = (errno.ENOENT, errno.ESRCH)


class DeviceFile(NamedTuple):
    """An accelerator, identified by its device file: /dev/nvidiaN or /dev/davinciN."""

    vendor: str
    number: int


def parse_device_path(path: str) -> DeviceFile | None:
    """The accelerator of a device file; None for any other file."""
    match = _ACCELERATOR.fullmatch(path)
    return DeviceFile(_VENDORS[match[1]], int(match[2])) if match else None


class OpenAccelerators(NamedTuple):
    """The accelerators that a process has open, and whether all of its open files could be seen."""

    files: frozenset[DeviceFile] = frozenset()
    complete: bool = True


def open_accelerators(procfs: str, pid: str) -> OpenAccelerators:
    """Look at the open files of a process; a process that has ended has none."""
    folder = os.path.join(procfs, pid, "fd")
    complete = True
    opened = set()
    try:
        names = os.listdir(folder)
    except OSError as error:
        return OpenAccelerators(complete=error.errno in _ENDED)
    for name in names:
        try:
            opened.add(parse_device_path(os.readlink(os.path.join(folder, name))))
        except OSError as error:  # closed meanwhile, or not readable
            complete = complete and error.errno in _ENDED
    return OpenAccelerators(frozenset(file for file in opened if file is not None), complete)


def is_hidden(procfs: str, pid: str) -> bool:
    """Whether this process may not list the open files of another, or not read their links."""
    folder = os.path.join(procfs, pid, "fd")
    try:
        for name in os.listdir(folder)[:1]:
            os.readlink(os.path.join(folder, name))
    except PermissionError:  # also if the process ends meanwhile
        return os.path.exists(os.path.join(procfs, pid))
    except OSError:
        return False
    return False


def sees_kernel(procfs: str) -> bool:
    """Whether this procfs shows the node's processes: another PID namespace has no kthreadd."""
    return "(kthreadd)" in (read_text(os.path.join(procfs, "2/stat")) or "")


class OwnProcesses:
    """Processes that are no job: the agent's own, which are children of our parent, and monitoring
    programs by name. A command passes other parents: its parent is a shell, which may start jobs.
    """

    def __init__(
        self, procfs: str, names: tuple[str, ...], parents: frozenset[int] | None = None
    ) -> None:
        self._procfs = procfs
        self._parents = frozenset([os.getppid()]) if parents is None else parents
        self.names = names
        self.session = 0
        """The session of a program that this process runs: whatever is in it is no job either."""

    def include(self, pid: str) -> bool | None:
        """Whether this process is one of them or has ended; None if that cannot be read."""
        path = os.path.join(self._procfs, pid, "stat")
        text = read_text(path)
        if text is None:
            return True if exists(path) is False else None
        stat = parse_process_stat(text)
        name = text.partition("(")[2].rpartition(")")[0]
        if name in self.names:
            return True
        if stat is None:
            return False
        return stat.parent in self._parents or 0 < self.session == stat.session
