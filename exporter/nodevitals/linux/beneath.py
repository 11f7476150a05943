"""Opens entries of directories that other users may write to.

In: a directory's descriptor and a name without a slash. An entry is examined before it is opened
(O_PATH, open(2)), and exactly the examined entry is opened: no symbolic link is followed, no device
or FIFO is opened, and no other mount is entered, also where a user replaces the entry meanwhile.
"""

from __future__ import annotations

import errno
import os
import stat

MAX_FILE_BYTES = 16 * 1024 * 1024
_KINDS = {
    stat.S_IFREG: "regular file",
    stat.S_IFDIR: "directory",
    stat.S_IFLNK: "symbolic link",
    stat.S_IFIFO: "FIFO",
    stat.S_IFSOCK: "socket",
    stat.S_IFCHR: "character device",
    stat.S_IFBLK: "block device",
}


class InterferenceError(Exception):
    """Another user placed an unsuitable entry; the text describes it, and what to do."""


def open_file(directory: int, name: str, flags: int, same: os.stat_result | None = None) -> int:
    """Open a regular file. Raises InterferenceError where the entry is anything else, or is another
    file than `same`, and OSError.
    """
    flags |= os.O_NONBLOCK | os.O_NOCTTY
    try:
        handle = _open(directory, name, stat.S_IFREG, flags, same)
    except BlockingIOError:
        # Without O_NONBLOCK, a lease would delay open() by /proc/sys/fs/lease-break-time.
        raise InterferenceError(f"{name}: another process holds a lease on it (fcntl(2))") from None
    os.set_blocking(handle, True)
    return handle


def read_file(path: str) -> bytes:
    """The content of a regular file that other programs write: symbolic links are followed, devices
    and FIFOs are not opened. Raises OSError.
    """
    return read_written_file(path)[0]


def read_written_file(path: str, limit_bytes: int = MAX_FILE_BYTES) -> tuple[bytes, float]:
    """The content of a regular file, up to a limit, and the Unix time of its last change."""
    entry = os.open(path, os.O_PATH | os.O_CLOEXEC)
    try:
        if not stat.S_ISREG(os.fstat(entry).st_mode):
            raise OSError(errno.EINVAL, "not a regular file", path)
        # Python's file objects are not used: they return None for EAGAIN.
        descriptor = os.open(f"/proc/self/fd/{entry}", os.O_RDONLY | os.O_CLOEXEC)
    finally:
        os.close(entry)
    try:
        written = os.fstat(descriptor).st_mtime
        data = b""
        while part := os.read(descriptor, limit_bytes - len(data)):
            data += part
        return data, written
    finally:
        os.close(descriptor)


def open_directory(directory: int, name: str) -> int:
    """Open a directory. Raises InterferenceError where the entry is anything else, and OSError."""
    return _open(directory, name, stat.S_IFDIR, os.O_RDONLY | os.O_DIRECTORY, None)


def mount_id(descriptor: int) -> int:
    """The kernel's identifier of the mount that a descriptor is on: the first field of its line in
    mountinfo.
    """
    with open(f"/proc/self/fdinfo/{descriptor}", encoding="ascii") as file:
        return next(int(line.split()[1]) for line in file if line.startswith("mnt_id:"))


def _open(directory: int, name: str, kind: int, flags: int, same: os.stat_result | None) -> int:
    entry = os.open(name, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=directory)
    try:
        # Checked first: fstat on a file system in user space may hang.
        if mount_id(entry) != mount_id(directory):
            raise InterferenceError(f"{name} is a mount point: unmount it")
        status = os.fstat(entry)
        file_type = stat.S_IFMT(status.st_mode)
        if file_type != kind:
            text = f"{name} is a {_KINDS.get(file_type, 'file')}, not a {_KINDS[kind]}: remove it"
            raise InterferenceError(text)
        if same is not None and not os.path.samestat(status, same):
            raise InterferenceError(f"{name} was replaced by another file")
        try:
            return os.open(f"/proc/self/fd/{entry}", flags | os.O_CLOEXEC)
        except OSError as error:
            # A file server no longer knows the file where another client has replaced it.
            if error.errno == errno.ESTALE and _is_replaced(directory, name, status):
                raise InterferenceError(f"{name} was replaced by another file") from None
            raise
    finally:
        os.close(entry)


def _is_replaced(directory: int, name: str, status: os.stat_result) -> bool:
    try:
        present = os.stat(name, dir_fd=directory, follow_symlinks=False)
    except OSError as error:
        return error.errno == errno.ENOENT
    return not os.path.samestat(present, status)
