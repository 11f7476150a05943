"""The lock on a state directory: one agent at a time reads and writes its database."""

from __future__ import annotations

import contextlib
import fcntl
import os
import time
from pathlib import Path

from nodevitals.linux.host import node_name

FILE_NAME = "history.lock"
_ATTEMPT_SECONDS = 0.05
_NAME_BYTES = 256


class DirectoryInUseError(Exception):
    """Another process holds the lock; the text names its node."""


class DirectoryLock:
    """A lock file in the directory: over NFS a directory itself cannot be locked. The kernel
    releases the lock when the process that holds it ends, however it ends.
    """

    def __init__(self, directory: str, wait_seconds: float) -> None:
        """Take the lock; wait for an agent that is ending. Raises OSError and
        DirectoryInUseError.
        """
        self._path = Path(directory, FILE_NAME)
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
        self._descriptor = os.open(self._path, flags, 0o644)
        try:
            self._lock(time.monotonic() + wait_seconds)
            os.ftruncate(self._descriptor, 0)
            os.pwrite(self._descriptor, node_name().encode()[:_NAME_BYTES], 0)
        except BaseException:
            self.release()
            raise

    def _lock(self, deadline: float) -> None:
        while True:
            with contextlib.suppress(BlockingIOError):
                fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return
            if time.monotonic() >= deadline:
                name = os.pread(self._descriptor, _NAME_BYTES, 0).decode("utf-8", "replace")
                raise DirectoryInUseError(f"another agent on {name or 'some node'} uses it")
            time.sleep(_ATTEMPT_SECONDS)

    def holds(self) -> bool:
        """Whether the file that is locked is still the one in the directory."""
        own = os.fstat(self._descriptor)
        try:
            there = os.stat(self._path, follow_symlinks=False)
        except OSError:
            return False
        return (own.st_dev, own.st_ino) == (there.st_dev, there.st_ino)

    def release(self) -> None:
        """Release the lock. The file stays: removing it would race with the next agent."""
        os.close(self._descriptor)
