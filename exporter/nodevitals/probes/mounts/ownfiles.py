"""The probe's own directory on a mount: the names of its files, and the removal of leftovers.

Several nodes may share the mount, so each file name starts with the name of its node.
"""

from __future__ import annotations

import os
import re
import secrets
import stat
from contextlib import suppress

from nodevitals.linux.host import node_name

DIRECTORY = ".nodevitals"
# A younger file may belong to a second agent with this node's name. Both timestamps come from the
# file server's clock.
LEFTOVER_SECONDS = 120.0
MAX_CHECKED_ENTRIES = 1000


def new_name() -> str:
    """A file name that no other run uses."""
    return f"{_prefix()}{secrets.token_hex(8)}.probe"


def open_directory(mountpoint: str) -> int:
    """A descriptor of the directory, which is created where it is missing. Raises OSError, also
    where a symbolic link is in its place: following it could lead out of the mount.
    """
    path = os.path.join(mountpoint, DIRECTORY)
    with suppress(FileExistsError):
        os.mkdir(path, 0o700)
    return os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)


def remove_leftovers(directory: int, current_name: str, now: float) -> None:
    """Remove the files that crashed runs of this node left. `now` is the file server's time."""
    with suppress(OSError), os.scandir(directory) as entries:
        for entry, _ in zip(entries, range(MAX_CHECKED_ENTRIES), strict=False):
            if entry.name == current_name or not _is_leftover(entry.name):
                continue
            with suppress(OSError):
                status = os.stat(entry.name, dir_fd=directory, follow_symlinks=False)
                old = now - status.st_mtime > LEFTOVER_SECONDS
                if old and stat.S_ISREG(status.st_mode):
                    os.unlink(entry.name, dir_fd=directory)


def _prefix() -> str:
    return re.sub(r"[^A-Za-z0-9_-]", "_", node_name()) + "."


def _is_leftover(name: str) -> bool:
    """A file of this node, or what NFS and FUSE rename a file to that is unlinked while open."""
    own = re.fullmatch(re.escape(_prefix()) + r"[0-9a-f]{16}\.probe", name)
    return bool(own) or name.startswith((".nfs", ".fuse_hidden"))
