"""Small files and directories of procfs and sysfs. What cannot be read is None or empty."""

from __future__ import annotations

import os
import re

from nodevitals.errors import ProbeError

_PAGE_BYTES = 4096
# The number of digits of the largest 64-bit number.
_MAX_DIGITS = 20
_MAX_LABEL_CHARACTERS = 128


def read_bytes(path: str | os.PathLike[str]) -> bytes:
    """The content of a small file. Raises OSError.

    Plain system calls take half the time of `Path.read_bytes`: on some nodes several hundred files
    are read every second. EAGAIN is an error here; Python's file objects return None for it.
    """
    data = b""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        # A read of a procfs file may return less than the rest of the file.
        while part := os.read(descriptor, _PAGE_BYTES):
            data += part
    finally:
        os.close(descriptor)
    return data


def read_text(path: str | os.PathLike[str]) -> str | None:
    """The stripped text of a small file; None where it cannot be read."""
    try:
        return read_bytes(path).decode("utf-8", "replace").strip()
    except OSError:
        return None


def read_label(path: str | os.PathLike[str]) -> str | None:
    """The text of a small file where it may be the value of a label; None where it cannot be read
    or is anything else.
    """
    text = read_text(path)
    fits = text is not None and text.isascii() and len(text) <= _MAX_LABEL_CHARACTERS
    return text if fits and (text or "").isprintable() else None


def read_integer(path: str | os.PathLike[str]) -> int | None:
    """The number in a file that holds one integer of 0 or more; None where it does not."""
    try:
        descriptor = os.open(path, os.O_RDONLY)
        try:
            data = os.read(descriptor, _PAGE_BYTES)
            # The file has one line: after its end, a second read would return nothing.
            while not data.endswith(b"\n") and (part := os.read(descriptor, _PAGE_BYTES)):
                data += part
        finally:
            os.close(descriptor)
    except OSError:
        return None
    return parse_integer(data.decode("utf-8", "replace").strip())


def parse_integer(text: str) -> int | None:
    """An integer of 0 or more; None for anything else, such as `N/A (no PMA)`."""
    fits = len(text) <= _MAX_DIGITS and text.isascii() and text.isdigit()
    return int(text) if fits else None


def list_names(directory: str | os.PathLike[str]) -> list[str]:
    """The names in a directory, sorted; none where it cannot be listed."""
    try:
        return sorted(os.listdir(directory))
    except OSError:
        return []


def can_be_listed(directory: str | os.PathLike[str]) -> bool:
    """Whether a directory that is there can be listed."""
    try:
        os.listdir(directory)
    except FileNotFoundError:
        return True
    except OSError:
        return False
    return True


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


def link_name(path: str | os.PathLike[str]) -> str | None:
    """The last part of a symbolic link's target; '' where there is no link, None where that cannot
    be read.
    """
    try:
        return os.path.basename(os.readlink(path))
    except (FileNotFoundError, NotADirectoryError):
        return ""
    except OSError:
        return None


def exists(path: str | os.PathLike[str]) -> bool | None:
    """Whether there is a file, directory or link; None where that cannot be read."""
    try:
        os.lstat(path)
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError:
        return None
    return True


def unescape(text: str) -> str:
    r"""Undo the kernel's octal escapes of space, tab, newline and backslash (\040)."""
    return re.sub(r"\\([0-7]{3})", lambda match: chr(int(match[1], 8)), text)
