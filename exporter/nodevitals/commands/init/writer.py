"""Writes files to a folder without replacing any. In: texts by path. Out: the outcome of each.

A file gets its name only when it is complete and on disk: it is written under another name and then
linked, which fails where the name exists; on a file system without hard links (vfat, some FUSE and
SMB) it is renamed. Links within the folder are not followed. The next run removes the files that an
interrupted run left; two runs at the same time are refused.
"""

from __future__ import annotations

import errno
import fcntl
import os
import re
import stat
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Literal

from nodevitals.commands.terminal import CommandError

Outcome = Literal["written", "kept", "differs"]
DRAFT = ".nodevitals-init.new"
# The date of the run in a comment does not count as a difference.
_DATE = re.compile(rb"[0-9]{4}-[0-9]{2}-[0-9]{2}")
_MAX_BYTES = 16 * 1024 * 1024
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
_NO_HARD_LINKS = (errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK)
_FILE_MODE, _FOLDER_MODE = 0o644, 0o755  # other users' servers read them, whatever the umask


class Folder:
    """A folder, created if missing, that no other run writes to. Use it in a with block."""

    def __init__(self, path: str) -> None:
        """Raises CommandError where it cannot be used."""
        self._path = path
        try:
            os.makedirs(path, exist_ok=True)
            self._descriptor = os.open(path, _FOLDER)
        except OSError as error:
            raise CommandError(f"{path}: {error.strerror}: choose another DIR") from None

    def __enter__(self) -> Folder:
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(self._descriptor)
            raise CommandError(f"{self._path}: another `nodevitals init` writes to it") from None
        except OSError:
            pass  # a file system without locks
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._descriptor)

    def write(self, files: Mapping[str, str]) -> dict[str, Outcome]:
        """Write missing files. `kept`: the file has the same content; `differs`: it has another.

        Raises CommandError where a file cannot be written; the files before it are complete.
        """
        outcomes: dict[str, Outcome] = {}
        path = DRAFT
        try:
            with suppress(FileNotFoundError):
                os.unlink(DRAFT, dir_fd=self._descriptor)
            for path, text in files.items():
                outcomes[path] = _write(self._descriptor, self._descriptor, path, text.encode())
        except OSError as error:
            written = sum(outcome == "written" for outcome in outcomes.values())
            place = os.path.join(self._path, path)
            raise CommandError(
                f"{place}: {error.strerror}; {written} of {len(files)} files written: solve that "
                "and run it again"
            ) from None
        return outcomes


@contextmanager
def _subfolder(name: str, parent: int) -> Iterator[int]:
    """The descriptor of a folder in another one; it is created if missing."""
    with suppress(FileExistsError):
        os.mkdir(name, dir_fd=parent)
        os.chmod(name, _FOLDER_MODE, dir_fd=parent)
    descriptor = os.open(name, _FOLDER | os.O_NOFOLLOW, dir_fd=parent)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _write(root: int, folder: int, path: str, content: bytes) -> Outcome:
    """Write a file at a path below a folder; the draft is in the top folder `root`."""
    first, slash, rest = path.partition("/")
    if slash:
        with _subfolder(first, folder) as below:
            return _write(root, below, rest, content)
    with suppress(FileNotFoundError):
        return _compared(folder, path, content)
    _write_draft(root, content)
    try:
        os.link(DRAFT, path, src_dir_fd=root, dst_dir_fd=folder, follow_symlinks=False)
    except FileExistsError:  # created meanwhile
        return _compared(folder, path, content)
    except OSError as error:
        if error.errno not in _NO_HARD_LINKS:
            raise
        os.rename(DRAFT, path, src_dir_fd=root, dst_dir_fd=folder)
    finally:
        with suppress(FileNotFoundError):
            os.unlink(DRAFT, dir_fd=root)
    return "written"


def _write_draft(root: int, content: bytes) -> None:
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    descriptor = os.open(DRAFT, flags, _FILE_MODE, dir_fd=root)
    try:
        with open(descriptor, "wb", closefd=False) as file:
            file.write(content)
        os.fchmod(descriptor, _FILE_MODE)
        os.fsync(descriptor)  # a full disk may be noticed only here
    except BaseException:
        os.unlink(DRAFT, dir_fd=root)
        raise
    finally:
        os.close(descriptor)


def _compared(folder: int, name: str, content: bytes) -> Outcome:
    """Whether an existing file has the same content. Raises FileNotFoundError without a file."""
    if not stat.S_ISREG(os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode):
        return "differs"
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    descriptor = os.open(name, flags, dir_fd=folder)
    with open(descriptor, "rb") as file:
        present = file.read(_MAX_BYTES)
    return "kept" if _DATE.sub(b"", present) == _DATE.sub(b"", content) else "differs"
