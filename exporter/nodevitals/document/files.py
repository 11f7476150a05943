"""Reads files that a person or a tool writes: regular ones of a bounded size."""

from __future__ import annotations

import os
import stat

from nodevitals.document.problems import DocumentError, Problem

MAX_FILE_BYTES = 1024 * 1024


def read_file(path: str | os.PathLike[str]) -> bytes:
    """The content of a regular file, or of a link to one. Raises DocumentError with one problem.

    Anything else is refused at once: a FIFO without a writer would never open, a device never end.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
        try:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                raise DocumentError([Problem("", "not a regular file")])
            with open(descriptor, "rb", closefd=False) as handle:
                content = handle.read(MAX_FILE_BYTES + 1)
        finally:
            os.close(descriptor)
    except OSError as error:
        raise DocumentError([Problem("", f"cannot be read: {error.strerror}")]) from None
    except ValueError as error:  # a NUL in the path
        raise DocumentError([Problem("", f"cannot be read: {error}")]) from None
    if len(content) > MAX_FILE_BYTES:
        raise DocumentError([Problem("", f"larger than {MAX_FILE_BYTES // 1024} KiB")])
    return content
