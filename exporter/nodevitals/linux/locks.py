"""A lock file (flock) that no unprivileged user can hold, replace, or turn into a link.

In: a path. Out: a descriptor that holds the lock, or who holds it, from /proc/locks: proc_locks(5).
"""

from __future__ import annotations

import fcntl
import os
import stat
import time
from contextlib import suppress

import msgspec

from nodevitals.errors import ProbeError
from nodevitals.linux.beneath import InterferenceError, open_file
from nodevitals.linux.host import Host
from nodevitals.linux.process import seconds_since_start
from nodevitals.linux.sysfs import read_text

_OTHERS = stat.S_IRWXG | stat.S_IRWXO


class Holder(msgspec.Struct, frozen=True):
    """The process that took a lock, and the longest time for which it may hold it."""

    pid: int
    seconds: float


class LockFile:
    """One lock file, opened. Who may open a file may hold a lock on it: only its owner may."""

    def __init__(self, path: str) -> None:
        """Open it; make it, and its directory, where they are missing. Raises ProbeError `lock`."""
        self._path = path
        try:
            self.descriptor = self._open()
        except InterferenceError as problem:
            raise _failure(path, str(problem)) from None
        except OSError as error:
            raise _failure(path, str(error.strerror)) from None

    def _open(self) -> int:
        folder, name = os.path.split(self._path)
        with suppress(FileExistsError):
            os.mkdir(folder, 0o700)
        directory = os.open(folder, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            _check_directory(os.fstat(directory), folder)
            descriptor = _open_or_make(directory, name)
        finally:
            os.close(directory)
        try:
            _check_file(descriptor, name)
        except BaseException:
            os.close(descriptor)
            raise
        return descriptor

    def try_lock(self) -> bool:
        """Take the lock where it is free, and the file is still the one at the path."""
        try:
            fcntl.flock(self.descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        if self._is_at_path():
            os.utime(self.descriptor)  # the time from which a process that lives on holds it
            return True
        return False

    def holder(self, host: Host) -> Holder | None:
        """Who holds the lock; None where no process of this pid namespace does."""
        status = os.fstat(self.descriptor)
        text = read_text(host.proc("locks")) or ""
        pid = parse_holder(text, status.st_dev, status.st_ino)
        if pid is None:
            return None
        # A process that took the lock just now may be old, and a script leaves the time of the
        # file as it was: the younger of the two. A time in the future is none (the clock was set).
        ages = [seconds_since_start(host.procfs, pid), time.time() - status.st_mtime]
        return Holder(pid, min((age for age in ages if age is not None and age >= 0), default=0.0))

    def remove(self) -> None:
        """Remove the file, so that its holder keeps a file without a name."""
        try:
            if self._is_at_path():
                os.unlink(self._path)
        except OSError as error:
            raise _failure(self._path, str(error.strerror)) from None

    def close(self) -> None:
        """Close the descriptor; a program that inherited it holds the lock until its end."""
        os.close(self.descriptor)

    def _is_at_path(self) -> bool:
        try:
            found = os.stat(self._path, follow_symlinks=False)
        except OSError:
            return False
        return os.path.samestat(found, os.fstat(self.descriptor))


def parse_holder(text: str, device: int, inode: int) -> int | None:
    """The process that holds the flock on a file, in /proc/locks; None where none is listed."""
    place = f"{os.major(device):02x}:{os.minor(device):02x}:{inode}"
    for line in text.splitlines():
        fields = line.split()
        # A process that waits has `->` as its second field.
        if len(fields) > 5 and (fields[1], fields[5]) == ("FLOCK", place) and fields[4].isdecimal():
            return int(fields[4])
    return None


def _open_or_make(directory: int, name: str) -> int:
    try:
        flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        return os.open(name, flags, 0o600, dir_fd=directory)
    except FileExistsError:
        return open_file(directory, name, os.O_RDWR)


def _check_directory(status: os.stat_result, path: str) -> None:
    if status.st_uid not in (0, os.geteuid()):
        raise InterferenceError(f"{path} belongs to uid {status.st_uid}")
    writable = stat.S_IWOTH | (stat.S_IWGRP if status.st_gid != 0 else 0)
    if status.st_mode & writable and not status.st_mode & stat.S_ISVTX:
        raise InterferenceError(f"{path} is writable by other users")


def _check_file(descriptor: int, name: str) -> None:
    """Close a script's lock file to others; refuse a user's."""
    status = os.fstat(descriptor)
    if status.st_uid not in (0, os.geteuid()) or status.st_nlink > 1:
        text = f"{name} belongs to uid {status.st_uid} and has {status.st_nlink} links"
        raise InterferenceError(f"{text}: remove it")
    if status.st_mode & _OTHERS:
        os.fchmod(descriptor, 0o600)


def _failure(path: str, problem: str) -> ProbeError:
    return ProbeError("lock", f"{path}: {problem}; use a directory that only root can write to")
