"""Writes files to a folder, and replaces none: texts by path in, what became of each out.

A file has its name only once it is whole and on disk: it is written under another name and then
linked, which fails where the name is taken. Links within the folder are not followed. What an
interrupted run has left is removed by the next one; two at once are refused.
"""

from __future__ import annotations

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
# What a comment says about the day of the run is no difference.
_DATE = re.compile(rb"[0-9]{4}-[0-9]{2}-[0-9]{2}")
_MAX_BYTES = 16 * 1024 * 1024
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
_FILE_MODE, _FOLDER_MODE = 0o644, 0o755  # other users' servers read them, whatever the umask


def write(folder: str, files: Mapping[str, str]) -> dict[str, Outcome]:
    """Write what is not there. `kept` has the same content already, `differs` has another one.

    Raises CommandError where a file cannot be written; those before it are whole.
    """
    outcomes: dict[str, Outcome] = {}
    path = ""
    try:
        os.makedirs(folder, exist_ok=True)
        with _opened(folder) as root:
            _lock(root, folder)
            with suppress(FileNotFoundError):
                os.unlink(DRAFT, dir_fd=root)
            for path, text in files.items():
                outcomes[path] = _write_below(root, root, path, text.encode())
    except OSError as error:
        written = sum(outcome == "written" for outcome in outcomes.values())
        done = f"{written} of {len(files)} files written; run it again when that is solved"
        raise CommandError(f"{os.path.join(folder, path)}: {error.strerror}; {done}") from None
    return outcomes


@contextmanager
def _opened(path: str, parent: int | None = None) -> Iterator[int]:
    """A folder's descriptor; below `parent`, links are refused."""
    flags = _FOLDER if parent is None else _FOLDER | os.O_NOFOLLOW
    descriptor = os.open(path, flags, dir_fd=parent)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _lock(root: int, folder: str) -> None:
    """Keep other runs away until this one ends."""
    try:
        fcntl.flock(root, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise CommandError(f"{folder}: another `nodevitals init` writes to it: wait") from None
    except OSError:
        return  # a file system without locks


def _write_below(root: int, folder: int, path: str, content: bytes) -> Outcome:
    """Write a file at a path below a folder; the draft is in the top folder `root`."""
    first, slash, rest = path.partition("/")
    if slash:
        with suppress(FileExistsError):
            os.mkdir(first, dir_fd=folder)
            os.chmod(first, _FOLDER_MODE, dir_fd=folder)
        with _opened(first, folder) as below:
            return _write_below(root, below, rest, content)
    with suppress(FileNotFoundError):
        return _compared(folder, path, content)
    _write_draft(root, content)
    try:
        os.link(DRAFT, path, src_dir_fd=root, dst_dir_fd=folder, follow_symlinks=False)
    except FileExistsError:  # made since
        return _compared(folder, path, content)
    finally:
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
    """Whether what is there is the same file. Raises FileNotFoundError where nothing is."""
    if not stat.S_ISREG(os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode):
        return "differs"
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    descriptor = os.open(name, flags, dir_fd=folder)
    with open(descriptor, "rb") as file:
        found = file.read(_MAX_BYTES)
    return "kept" if _DATE.sub(b"", found) == _DATE.sub(b"", content) else "differs"
