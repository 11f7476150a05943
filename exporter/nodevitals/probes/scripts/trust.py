"""Checks that only root and the agent's user can change a file, and lists the scripts of a folder.

In: a path. Out: the path without symbolic links, or UntrustedError with the fix. Each directory of
the path, and of each link, is checked: a user who can write to one can replace the file.
"""

from __future__ import annotations

import os
import stat
import threading

MAX_LINKS = 40
MAX_ENTRIES = 4096
MAX_NAME_CHARACTERS = 128
LIST_SECONDS = 3.0
_OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH


class UntrustedError(Exception):
    """Another user can change what would be run; the text has the path and the fix."""


def trusted_path(path: str) -> str:
    """The path with its links followed. Raises UntrustedError and OSError."""
    parts = path.split("/")[::-1]
    current = ""
    links = 0
    _check(current or "/", os.lstat("/"))
    while parts:
        part = parts.pop()
        if part in ("", "."):
            continue
        if part == "..":
            current = current.rpartition("/")[0]
            continue
        status = os.lstat(f"{current}/{part}")
        _check(f"{current}/{part}", status)
        if not stat.S_ISLNK(status.st_mode):
            current = f"{current}/{part}"
            continue
        links += 1
        if links > MAX_LINKS:
            raise UntrustedError(f"{path}: too many symbolic links: remove the loop")
        target = os.readlink(f"{current}/{part}")
        current = "" if target.startswith("/") else current
        parts += target.split("/")[::-1]
    return current or "/"


def _check(path: str, status: os.stat_result) -> None:
    if status.st_uid not in (0, os.geteuid()):
        raise UntrustedError(f"{path} is owned by user {status.st_uid}: chown root {path}")
    mode = status.st_mode
    # In a directory with the sticky bit only the owner of an entry can replace it.
    sticky = stat.S_ISDIR(mode) and mode & stat.S_ISVTX
    if not stat.S_ISLNK(mode) and mode & _OTHERS_WRITE and not sticky:
        raise UntrustedError(f"{path} is writable by others: chmod go-w {path}")


def is_name(name: str) -> bool:
    """Whether a file's name can be the value of a label, and of a target."""
    return name.isprintable() and len(name) <= MAX_NAME_CHARACTERS and not name.startswith(".")


def list_scripts(folder: str) -> tuple[list[str], list[str], int]:
    """The names of the executable files, those of the other files, and the number of files whose
    name is refused. Raises OSError.
    """
    executable, other, refused = [], [], 0
    with os.scandir(folder) as entries:
        for entry, _ in zip(entries, range(MAX_ENTRIES)):
            if entry.name.startswith("."):
                continue
            try:
                mode = entry.stat().st_mode
            except OSError:  # a broken link
                mode = stat.S_IFREG
            if not stat.S_ISREG(mode):
                continue
            if not is_name(entry.name):
                refused += 1
            elif mode & 0o111:
                executable.append(entry.name)
            else:
                other.append(entry.name)
    return sorted(executable), sorted(other), refused


def list_in_time(folder: str) -> list[str]:
    """The names of the executable files, for a process that must not hang: none if the folder
    cannot be listed in time.
    """
    names: list[str] = []

    def look() -> None:
        try:
            names.extend(list_scripts(folder)[0])
        except OSError:
            return  # the run on the folder reports it

    thread = threading.Thread(target=look, daemon=True)
    thread.start()
    thread.join(LIST_SECONDS)
    return [] if thread.is_alive() else names
