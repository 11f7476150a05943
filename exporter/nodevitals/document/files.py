"""Reads files that a person or a tool writes: regular ones of a bounded size."""

from __future__ import annotations

import errno
import os
import stat
from typing import Optional

from nodevitals.document.problems import DocumentError, Problem, UnreadableError

MAX_FILE_BYTES = 1024 * 1024
_REMEDIES = {
    errno.ENOENT: "check the path",
    errno.EACCES: "run as a user that may read it, or change its permissions",
}


def read_file(path: str | os.PathLike[str]) -> bytes:
    """The content of a regular file, or of a link to one. Raises DocumentError with one problem.

    Anything else is refused at once: a FIFO without a writer would never open, a device never end.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
        try:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                raise UnreadableError([Problem("", "not a regular file: name a file")])
            with open(descriptor, "rb", closefd=False) as handle:
                content: Optional[bytes] = handle.read(MAX_FILE_BYTES + 1)
        finally:
            os.close(descriptor)
    except OSError as error:
        remedy = _REMEDIES.get(error.errno or 0, "check the path and the disk")
        text = f"cannot be read: {error.strerror}: {remedy}"
        raise UnreadableError([Problem("", text)]) from None
    except ValueError as error:  # a NUL in the path
        raise UnreadableError([Problem("", f"cannot be read: {error}: check the path")]) from None
    if content is None:  # such as /proc/kmsg, which waits for messages
        raise UnreadableError([Problem("", "has no content now: name another file")])
    if len(content) > MAX_FILE_BYTES:
        text = f"larger than {MAX_FILE_BYTES // 1024} KiB: remove what is not needed"
        raise DocumentError([Problem("", text)])
    return content
