"""Small files and folders of procfs and sysfs; what is not to be had is missing."""

from __future__ import annotations

import os
from pathlib import Path

from nodevitals.probe import ProbeError

# A file of sysfs is at most one page, and comes in one read.
_PAGE_BYTES = 4096


def read_text(path: Path) -> str | None:
    """A whole small file, stripped; None where it cannot be read."""
    try:
        return path.read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return None


def read_attribute(path: str | os.PathLike[str]) -> str | None:
    """A file of sysfs, stripped; None where it cannot be read.

    With plain system calls, a quarter of what `read_text` takes: some nodes are asked for hundreds
    of these files every second.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY)
        try:
            data = os.read(descriptor, _PAGE_BYTES)
        finally:
            os.close(descriptor)
    except OSError:
        return None
    return data.decode("utf-8", "replace").strip()


def read_integer(path: str | os.PathLike[str]) -> int | None:
    """A file of sysfs that holds one whole number from 0 up; None where it does not."""
    return parse_integer(read_attribute(path) or "")


def parse_integer(text: str) -> int | None:
    """A whole number from 0 up; None for anything else, such as `N/A (no PMA)`."""
    return int(text) if text.isascii() and text.isdigit() else None


def list_names(folder: str | os.PathLike[str]) -> list[str]:
    """What a folder holds, sorted; nothing where it is not there."""
    try:
        return sorted(os.listdir(folder))
    except OSError:
        return []


def list_folder(folder: str, root: str) -> list[str]:
    """What a folder holds, sorted; nothing where it is not there.

    Raises ProbeError where it cannot be listed, or where sysfs is not where `root` says: what is
    hidden from us has not gone.
    """
    try:
        return sorted(os.listdir(folder))
    except FileNotFoundError:
        if list_names(root):
            return []
        raise ProbeError("sysfs", f"nothing in {root}: is --path.sysfs right?") from None
    except OSError as error:
        raise ProbeError("sysfs", f"{folder} cannot be listed: {error.strerror}") from None


def link_name(path: str | os.PathLike[str]) -> str:
    """The last part of what a symbolic link points to; '' where there is none."""
    try:
        return os.path.basename(os.readlink(path))
    except OSError:
        return ""
