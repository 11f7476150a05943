"""The steps on one mount: statvfs, list, read, write and read back. Each step is timed.

In: a mounted path. Out: samples, or ProbeError with the errno as its reason. Any call may hang.
"""

from __future__ import annotations

import errno
import mmap
import os
import secrets
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress

from nodevitals.probe import Family, ProbeError, Readings
from nodevitals.probes.mounts import families, ownfiles

READ_BYTES = 4096
MAX_LISTED_ENTRIES = 100
_MEMORY_FILE_SYSTEMS = ("tmpfs", "ramfs", "hugetlbfs")
_REASONS = {
    errno.ENOSPC: "disk_full",
    errno.EDQUOT: "quota",
    errno.EACCES: "permission",
    errno.EPERM: "permission",
    errno.ESTALE: "stale_handle",
    errno.EROFS: "read_only",
    errno.EIO: "io_error",
    errno.ENOENT: "not_found",
    errno.ENOTCONN: "server_gone",
    errno.ETIMEDOUT: "server_timeout",
    errno.EHOSTDOWN: "server_timeout",
    errno.EMFILE: "descriptors",
}
# Which gauges a failed statvfs sets to 0, by the configured access.
_NEEDED = {
    "none": (),
    "read": (families.READABLE,),
    "write": (families.READABLE, families.WRITABLE),
}


class MountAccess:
    """Does the steps on one mount and records their durations and results."""

    def __init__(self, readings: Readings, labels: tuple[str, ...], path: str) -> None:
        """`labels` are the mount's: mountpoint, fstype, source."""
        self._readings = readings
        self._labels = labels
        self._path = path

    @contextmanager
    def _step(self, name: str, *failing: Family) -> Iterator[None]:
        """Time a step. Where it fails, the gauges `failing` become 0."""
        started = time.monotonic()
        try:
            yield
        except OSError as error:
            for family in failing:
                self._add(family, 0)
            number = error.errno or 0
            reason = _REASONS.get(number, errno.errorcode.get(number, "unknown").lower())
            text = f"{self._path}: {name}: {error.strerror or error}"
            raise ProbeError(reason, text) from None
        self._add(families.STEP_SECONDS, time.monotonic() - started, name)

    def _add(self, family: Family, value: float, *labels: str) -> None:
        self._readings.add(family, value, *self._labels, *labels)

    def statvfs(self, access: str) -> None:
        """Record space and inodes. A mount that fails here can be neither read nor written."""
        with self._step("statvfs", *_NEEDED[access]):
            status = os.statvfs(self._path)
        unit = status.f_frsize
        self._add(families.SIZE, status.f_blocks * unit)
        self._add(families.FREE, status.f_bavail * unit)
        if status.f_files:  # 0: the file system creates inodes as needed
            self._add(families.INODES, status.f_files)
            self._add(families.INODES_FREE, status.f_ffree)

    def read_or_list(self, file: str | None) -> None:
        """Read the start of a file, or list the directory where `file` is None."""
        started = time.monotonic()
        if file is None:
            with self._step("list", families.READABLE), os.scandir(self._path) as entries:
                for _, _ in zip(entries, range(MAX_LISTED_ENTRIES), strict=False):
                    pass
        else:
            with self._step("open", families.READABLE):
                handle = os.open(os.path.join(self._path, file), os.O_RDONLY | os.O_NONBLOCK)
            stream = os.fdopen(handle, "rb", buffering=0)
            with closing(stream), self._step("read", families.READABLE):
                os.posix_fadvise(handle, 0, 0, os.POSIX_FADV_DONTNEED)
                stream.read(READ_BYTES)
        self._add(families.READ_SECONDS, time.monotonic() - started)
        self._add(families.READABLE, 1)

    def write_and_read_back(self, size: int, fstype: str) -> None:
        """Write random bytes to a new file, read them back, compare, and delete the file."""
        self._readings.increment(families.MISMATCHES, 0, *self._labels)
        started = time.monotonic()
        name = ownfiles.new_name()
        with self._step("create", families.WRITABLE):
            directory = ownfiles.open_directory(self._path)
            handle = os.open(name, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600, dir_fd=directory)
        try:
            ownfiles.remove_leftovers(directory, name, os.fstat(handle).st_mtime)
            written = self._write(handle, size)
            self._add(families.WRITE_SECONDS, time.monotonic() - started)
            returned = self._read_back(handle, directory, name, size, fstype)
        except BaseException:
            with suppress(OSError):  # the first failure is the one to report
                os.unlink(name, dir_fd=directory)
            raise
        finally:
            with suppress(OSError):  # a failed close repeats what fsync has reported
                os.close(handle)
        with self._step("delete", families.WRITABLE):
            os.unlink(name, dir_fd=directory)
        self._add(families.WRITABLE, 1)
        self._compare(written, returned)

    def _write(self, handle: int, size: int) -> bytes:
        with mmap.mmap(-1, size) as block:  # page-aligned, as some O_DIRECT file systems require
            block.write(secrets.token_bytes(size))
            with self._step("write", families.WRITABLE):
                done = 0
                while done < size:
                    done += os.write(handle, memoryview(block)[done:])
            with self._step("fsync", families.WRITABLE):
                os.fsync(handle)
            return block[:]

    def _read_back(self, handle: int, directory: int, name: str, size: int, fstype: str) -> bytes:
        started = time.monotonic()
        with self._step("open", families.READABLE):
            reader, method = _open_past_the_cache(handle, directory, name, fstype)
        try:
            with self._step("read", families.READABLE), mmap.mmap(-1, size) as block:
                done = 0
                while done < size:
                    count = os.readv(reader, [memoryview(block)[done:]])
                    if count == 0:
                        break
                    done += count
                returned = block[:done]
        finally:
            os.close(reader)
        self._add(families.READ_SECONDS, time.monotonic() - started)
        self._add(families.READ_METHOD, 1, method)
        return returned

    def _compare(self, written: bytes, returned: bytes) -> None:
        if len(returned) < len(written):
            self._add(families.READABLE, 0)
            text = f"{self._path}: read back {len(returned)} of {len(written)} bytes"
            raise ProbeError("short_read", text)
        self._add(families.READABLE, 1)
        self._add(families.CONTENT_INTACT, returned == written)
        if returned != written:
            self._readings.increment(families.MISMATCHES, 1, *self._labels)
            pairs = enumerate(zip(written, returned, strict=True))
            first = next(index for index, (one, other) in pairs if one != other)
            text = f"{self._path}: data read back differs from data written, from byte {first} on"
            raise ProbeError("mismatch", text)


def _open_past_the_cache(handle: int, directory: int, name: str, fstype: str) -> tuple[int, str]:
    """A descriptor whose reads bypass the page cache where that is possible, and the method."""
    flags = os.O_RDONLY | os.O_NOFOLLOW
    if fstype in _MEMORY_FILE_SYSTEMS:
        return os.open(name, flags, dir_fd=directory), "cached"
    try:
        return os.open(name, flags | os.O_DIRECT, dir_fd=directory), "direct"
    except OSError as error:
        if error.errno != errno.EINVAL:
            raise
    os.posix_fadvise(handle, 0, 0, os.POSIX_FADV_DONTNEED)  # drops pages only after fsync
    return os.open(name, flags, dir_fd=directory), "dropped"
