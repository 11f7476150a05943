"""The probe's own directory on a mount, the file of one run in it, and the removal of leftovers.

Several nodes may share the mount, so each file name starts with the name of its node. Other users
may write to the mount, and one may have made the directory first: it is used only if its owner also
owns a file that the agent makes in it (on NFS with root_squash, an anonymous user) and its mode
denies access to all others. docs/adr/0015-other-users.md has the reasons.
"""

from __future__ import annotations

import enum
import os
import re
import secrets
import stat
from contextlib import suppress

from nodevitals.linux.beneath import InterferenceError, open_directory, open_file
from nodevitals.linux.host import node_name

DIRECTORY = ".nodevitals"
# A younger file may belong to a second agent with this node's name. Both timestamps come from the
# file server's clock.
LEFTOVER_SECONDS = 120.0
MAX_CHECKED_ENTRIES = 1000
_OTHERS = stat.S_IRWXG | stat.S_IRWXO
_CHANGES = ("st_dev", "st_ino", "st_size", "st_mtime_ns", "st_ctime_ns", "st_uid", "st_mode")


class Writers(enum.Enum):
    """The other users that can write to the probe's directory."""

    NONE = "none"
    SAME_OWNER = "same owner"
    """Processes of the anonymous user, which root of other machines is mapped to as well."""
    ANYONE = "anyone"
    """The file system keeps no modes (vfat, CIFS, object stores), so modes show nothing."""


class OwnFile:
    """The file of one run. `handle` is open for writing until `close`."""

    def __init__(self, mount: int) -> None:
        """Create it on the mount of this descriptor. Raises InterferenceError and OSError."""
        self.name = f"{_prefix()}{secrets.token_hex(8)}.probe"
        self._directory = _open_own_directory(mount)
        try:
            self.handle = self._create(mount)
        except BaseException:
            os.close(self._directory)
            raise

    def _create(self, mount: int) -> int:
        flags = os.O_CREAT | os.O_EXCL | os.O_RDWR | os.O_CLOEXEC
        folder = os.fstat(self._directory)
        try:
            handle = os.open(self.name, flags, 0o600, dir_fd=self._directory)
        except FileNotFoundError:
            raise InterferenceError(f"{DIRECTORY} was removed as it was used") from None
        except OSError:
            _refuse_foreign_directory(mount, folder)
            raise
        try:
            self.status = self._read_status = os.fstat(handle)
            problem = problem_of(folder, self.status)
            if problem:
                raise InterferenceError(problem)
            self.writers = other_writers(folder, self.status, os.geteuid())
        except BaseException:
            os.close(handle)
            with suppress(OSError):
                self.unlink()
            raise
        return handle

    def open_for_reading(self, flags: int) -> int:
        """Open the same file once more, by its name. Raises InterferenceError and OSError."""
        self.status = os.fstat(self.handle)
        return open_file(self._directory, self.name, os.O_RDONLY | flags, self.status)

    def note_read(self, reader: int) -> None:
        """Remember the file's status after it was read back."""
        self._read_status = os.fstat(reader)

    def may_be_altered(self) -> bool:
        """Whether another user may have changed the data between writing and reading it. If only
        the agent can write, timestamps are not checked.
        """
        if self.writers is Writers.SAME_OWNER:
            before, after = self.status, self._read_status
            return any(getattr(before, field) != getattr(after, field) for field in _CHANGES)
        return self.writers is Writers.ANYONE

    def is_replaced(self) -> bool:
        """Whether the name now leads to another file or, if others can write, to none."""
        try:
            current = os.stat(self.name, dir_fd=self._directory, follow_symlinks=False)
        except FileNotFoundError:
            return self.writers is not Writers.NONE
        except OSError:
            return False
        return not os.path.samestat(current, self.status)

    def remove_leftovers(self) -> None:
        """Remove the files that crashed runs of this node left."""
        with suppress(OSError), os.scandir(self._directory) as entries:
            for entry, _ in zip(entries, range(MAX_CHECKED_ENTRIES)):
                if entry.name != self.name and _is_leftover(entry.name):
                    with suppress(OSError):
                        self._remove_old(entry.name)

    def _remove_old(self, name: str) -> None:
        old, own = os.stat(name, dir_fd=self._directory, follow_symlinks=False), self.status
        like_ours = (old.st_uid, old.st_mode) == (own.st_uid, own.st_mode)
        if like_ours and own.st_mtime - old.st_mtime > LEFTOVER_SECONDS:
            os.unlink(name, dir_fd=self._directory)

    def unlink(self) -> None:
        """Remove the file. Raises OSError."""
        os.unlink(self.name, dir_fd=self._directory)

    def close_handle(self) -> None:
        """Close the file, for NFS before it is removed; fsync has reported all errors."""
        handle, self.handle = self.handle, -1
        if handle >= 0:
            with suppress(OSError):
                os.close(handle)

    def close(self) -> None:
        """Close the file and the directory."""
        self.close_handle()
        os.close(self._directory)


def problem_of(directory: os.stat_result, file: os.stat_result) -> str:
    """Why a directory does not belong to the probe, by a file that the probe has just made in it;
    '' if it does.
    """
    if directory.st_uid != file.st_uid:
        return (
            f"{DIRECTORY} belongs to uid {directory.st_uid}, files of the agent to uid "
            f"{file.st_uid}: remove the directory"
        )
    # The mode of the file has more bits than requested: the file system keeps no modes.
    if directory.st_mode & _OTHERS and not file.st_mode & _OTHERS:
        mode = stat.S_IMODE(directory.st_mode)
        return f"{DIRECTORY} has mode {mode:04o}, not 0700: remove the directory"
    return ""


def other_writers(directory: os.stat_result, file: os.stat_result, own_uid: int) -> Writers:
    """Who else can write to the probe's directory."""
    if (directory.st_mode | file.st_mode) & _OTHERS:
        return Writers.ANYONE
    return Writers.NONE if file.st_uid == own_uid else Writers.SAME_OWNER


def _open_own_directory(mount: int) -> int:
    """Open the probe's directory; make it only if it is missing, because an NFS server may refuse
    to make a directory before it reports that the directory exists.
    """
    with suppress(FileNotFoundError):
        return _open_existing(mount)
    with suppress(FileExistsError):
        os.mkdir(DIRECTORY, 0o700, dir_fd=mount)
    try:
        return _open_existing(mount)
    except FileNotFoundError:
        raise InterferenceError(f"{DIRECTORY} was removed as it was opened") from None


def _open_existing(mount: int) -> int:
    try:
        return open_directory(mount, DIRECTORY)
    except PermissionError:
        directory = os.stat(DIRECTORY, dir_fd=mount, follow_symlinks=False)
        _refuse_foreign_directory(mount, directory)
        raise


def _refuse_foreign_directory(mount: int, directory: os.stat_result) -> None:
    """Called if the agent cannot use the directory: raise InterferenceError if another user made
    it, by comparison with a new directory. If none can be made, raise the file system's error.
    """
    if directory.st_uid == os.geteuid() and not directory.st_mode & _OTHERS:
        return
    name = f"{DIRECTORY}-{secrets.token_hex(8)}"
    with suppress(OSError):
        os.mkdir(name, 0o700, dir_fd=mount)
        try:
            made = os.stat(name, dir_fd=mount, follow_symlinks=False)
        finally:
            os.rmdir(name, dir_fd=mount)
        problem = problem_of(directory, made)
        if problem:
            raise InterferenceError(problem)


def _prefix() -> str:
    return re.sub(r"[^A-Za-z0-9_-]", "_", node_name()) + "."


def _is_leftover(name: str) -> bool:
    """Whether this is a file of this node, or the name that NFS and FUSE give an open file when it
    is unlinked.
    """
    own = re.fullmatch(re.escape(_prefix()) + r"[0-9a-f]{16}\.probe", name)
    return bool(own) or name.startswith((".nfs", ".fuse_hidden"))
