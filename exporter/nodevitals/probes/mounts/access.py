"""The steps on one mount: statvfs, list, read, write and read back. Each step is timed.

In: a mounted path. Out: samples, or ProbeError with the errno as its reason, or `interference`
if another user causes the failure: then the state of the mount is unknown. Any call may hang.
"""

from __future__ import annotations

import errno
import mmap
import os
import secrets
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress

from nodevitals.linux.beneath import InterferenceError, mount_id, open_file
from nodevitals.probe import Family, ProbeError, Readings
from nodevitals.probes.mounts import families
from nodevitals.probes.mounts.ownfiles import OwnFile

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
# The gauges that a failed statvfs sets to 0, by the configured access.
_NEEDED = {
    "none": (),
    "read": (families.READABLE,),
    "write": (families.READABLE, families.WRITABLE),
}


class MountAccess:
    """Does the steps on one mount and records their durations and results."""

    def __init__(
        self, readings: Readings, labels: tuple[str, ...], path: str, mount_ids: frozenset[int]
    ) -> None:
        """`labels` are the labels of the mount: mountpoint, fstype, source. `mount_ids` are the
        kernel's identifiers of all mounts at the path.
        """
        self._readings = readings
        self._labels = labels
        self._path = path
        self._mount_ids = mount_ids
        self._mount = -1
        self._own: OwnFile | None = None

    def close(self) -> None:
        """Close the mount point."""
        if self._mount >= 0:
            os.close(self._mount)

    @contextmanager
    def _step(self, name: str, *failing: Family) -> Iterator[None]:
        """Time a step. If it fails, the gauges `failing` become 0."""
        started = time.monotonic()
        try:
            yield
        except InterferenceError as problem:
            raise self._interference(str(problem)) from None
        except OSError as error:
            if self._own is not None and self._own.is_replaced():
                text = f"{name}: {self._own.name} was removed or replaced"
                raise self._interference(text) from None
            for family in failing:
                self._add(family, 0)
            number = error.errno or 0
            reason = _REASONS.get(number, errno.errorcode.get(number, "unknown").lower())
            text = f"{self._path}: {name}: {error.strerror or error}"
            raise ProbeError(reason, text) from None
        self._add(families.STEP_SECONDS, time.monotonic() - started, name)

    def _interference(self, text: str) -> ProbeError:
        return ProbeError("interference", f"{self._path}: {text}")

    def _add(self, family: Family, value: float, *labels: str) -> None:
        self._readings.add(family, value, *self._labels, *labels)

    def statvfs(self, access: str) -> None:
        """Open the mount point, record space and inodes. A mount that fails here can be neither
        read nor written.
        """
        with self._step("statvfs", *_NEEDED[access]):
            self._mount = os.open(self._path, os.O_PATH | os.O_CLOEXEC)
            status = os.statvfs(self._mount)
        # Later steps start from this descriptor, so they cannot leave the mount, even if it is
        # unmounted meanwhile or a directory above it is renamed.
        if mount_id(self._mount) not in self._mount_ids:
            raise ProbeError("missing", f"{self._path}: was unmounted during this run")
        unit = status.f_frsize
        self._add(families.SIZE, status.f_blocks * unit)
        self._add(families.FREE, status.f_bavail * unit)
        if status.f_files:  # 0: the file system creates inodes as needed
            self._add(families.INODES, status.f_files)
            self._add(families.INODES_FREE, status.f_ffree)

    def read_or_list(self, file: str | None) -> None:
        """Read the start of a file; if `file` is None, list the directory."""
        started = time.monotonic()
        if file is None:
            with self._step("list", families.READABLE):
                self._list()
        else:
            with self._step("open", families.READABLE):
                handle = open_file(self._mount, file, os.O_RDONLY)
            stream = os.fdopen(handle, "rb", buffering=0)
            with closing(stream), self._step("read", families.READABLE):
                os.posix_fadvise(handle, 0, 0, os.POSIX_FADV_DONTNEED)
                stream.read(READ_BYTES)
        self._add(families.READ_SECONDS, time.monotonic() - started)
        self._add(families.READABLE, 1)

    def _list(self) -> None:
        directory = os.open(".", os.O_RDONLY | os.O_DIRECTORY, dir_fd=self._mount)
        try:
            with os.scandir(directory) as entries:
                for _, _ in zip(entries, range(MAX_LISTED_ENTRIES)):
                    pass
        finally:
            os.close(directory)

    def write_and_read_back(self, size: int, fstype: str) -> None:
        """Write random bytes to a new file, read them back, compare, and delete the file."""
        self._readings.increment(families.MISMATCHES, 0, *self._labels)
        started = time.monotonic()
        with self._step("create", families.WRITABLE):
            self._own = own = OwnFile(self._mount)
        with closing(own):
            try:
                own.remove_leftovers()
                written = self._write(own.handle, size)
                self._add(families.WRITE_SECONDS, time.monotonic() - started)
                returned = self._read_back(own, size, fstype)
            except BaseException:
                with suppress(OSError):  # the first failure is the one to report
                    own.unlink()
                raise
            own.close_handle()
            with self._step("delete", families.WRITABLE):
                own.unlink()
        self._add(families.WRITABLE, 1)
        self._compare(own, written, returned)

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

    def _read_back(self, own: OwnFile, size: int, fstype: str) -> bytes:
        started = time.monotonic()
        with self._step("open", families.READABLE):
            reader, method = _open_past_the_cache(own, fstype)
        try:
            with self._step("read", families.READABLE), mmap.mmap(-1, size) as block:
                done = 0
                while done < size:
                    count = os.readv(reader, [memoryview(block)[done:]])
                    if count == 0:
                        break
                    done += count
                returned = block[:done]
                own.note_read(reader)
        finally:
            os.close(reader)
        self._add(families.READ_SECONDS, time.monotonic() - started)
        self._add(families.READ_METHOD, 1, method)
        return returned

    def _compare(self, own: OwnFile, written: bytes, returned: bytes) -> None:
        if returned != written and own.may_be_altered():
            text = f"data read back differs, but others can write to it ({own.writers.value})"
            raise self._interference(text)
        if len(returned) < len(written):
            self._add(families.READABLE, 0)
            text = f"{self._path}: read back {len(returned)} of {len(written)} bytes"
            raise ProbeError("short_read", text)
        self._add(families.READABLE, 1)
        self._add(families.CONTENT_INTACT, returned == written)
        if returned != written:
            self._readings.increment(families.MISMATCHES, 1, *self._labels)
            pairs = enumerate(zip(written, returned))
            first = next(index for index, (wrote, read) in pairs if wrote != read)
            text = f"{self._path}: data read back differs from data written, from byte {first} on"
            raise ProbeError("mismatch", text)


def _open_past_the_cache(own: OwnFile, fstype: str) -> tuple[int, str]:
    """A descriptor whose reads bypass the page cache if that is possible, and the method."""
    if fstype in _MEMORY_FILE_SYSTEMS:
        return own.open_for_reading(0), "cached"
    try:
        return own.open_for_reading(os.O_DIRECT), "direct"
    except OSError as error:
        if error.errno != errno.EINVAL:
            raise
    os.posix_fadvise(own.handle, 0, 0, os.POSIX_FADV_DONTNEED)  # drops pages only after fsync
    return own.open_for_reading(0), "dropped"
