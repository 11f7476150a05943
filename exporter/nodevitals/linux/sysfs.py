"""Small files and directories of procfs and sysfs. What cannot be read is None or empty."""

from __future__ import annotations

import os

from nodevitals.errors import ProbeError

_PAGE_BYTES = 4096
_MAX_DIGITS = 20


def read_text(path: str | os.PathLike[str]) -> str | None:
    """A whole small file, stripped; None where it cannot be read.

    Plain system calls take half the time of `Path.read_text`: on some nodes several hundred files
    are read every second.
    """
    data = b""
    try:
        descriptor = os.open(path, os.O_RDONLY)
        try:
            # A file of procfs may return less than its rest.
            while part := os.read(descriptor, _PAGE_BYTES):
                data += part
        finally:
            os.close(descriptor)
    except OSError:
        return None
    return data.decode("utf-8", "replace").strip()


def read_integer(path: str | os.PathLike[str]) -> int | None:
    """The number in a file that holds one integer of 0 or more; None where it does not."""
    return parse_integer(read_text(path) or "")


def parse_integer(text: str) -> int | None:
    """An integer of 0 or more, of at most 64 bits; None for anything else: `N/A (no PMA)`."""
    fits = len(text) <= _MAX_DIGITS and text.isascii() and text.isdigit()
    return int(text) if fits else None


def list_names(directory: str | os.PathLike[str]) -> list[str]:
    """The names in a directory, sorted; none where it cannot be listed."""
    try:
        return sorted(os.listdir(directory))
    except OSError:
        return []


def list_names_or_fail(directory: str, root: str) -> list[str]:
    """The names in a directory below `root`, sorted; none where the directory does not exist.

    Raises ProbeError where it cannot be listed or where `root` is empty: devices that cannot be
    seen are not missing.
    """
    try:
        return sorted(os.listdir(directory))
    except FileNotFoundError:
        if list_names(root):
            return []
        raise ProbeError("sysfs", f"nothing in {root}: is --path.sysfs right?") from None
    except OSError as error:
        raise ProbeError("sysfs", f"{directory} cannot be listed: {error.strerror}") from None


def link_name(path: str | os.PathLike[str]) -> str:
    """The last part of a symbolic link's target; '' where there is no link."""
    try:
        return os.path.basename(os.readlink(path))
    except OSError:
        return ""
