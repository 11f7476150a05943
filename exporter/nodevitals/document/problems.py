"""The problems of a file, each with its path and line.

Also reads files that a person or a tool writes: regular files of bounded size.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Sequence
from typing import Optional, Union

import msgspec

# For a file with thousands of errors, the first ones are enough.
MAX_PROBLEMS = 50


class Problem(msgspec.Struct, frozen=True, order=True):
    """An error in a file: its path (`probes.mounts.targets[0].path`) and a message; its line and
    column, where they are known, from 1.
    """

    path: str
    message: str
    line: int = 0
    column: int = 0

    def __str__(self) -> str:
        return f"{self.path}: {self.message}" if self.path else self.message

    def within(self, file: str) -> str:
        """The problem with the file's name, the line and the column, as compilers print them."""
        numbers = "".join(f":{number}" for number in (self.line, self.column) if number)
        return f"{file}{numbers}: {self}"


class ProblemsError(Exception):
    """Something was refused for at least one problem. The text has the first problem, and the
    number of the others.
    """

    def __init__(self, *problems: Union[str, Problem]) -> None:
        """Take problems; a text becomes a problem without a path."""
        self.problems = tuple(
            Problem("", problem) if isinstance(problem, str) else problem for problem in problems
        )
        first, more = problems[0], len(problems) - 1
        text = f"{first} (and {more} more)" if more else str(first)
        super().__init__(first if isinstance(first, str) and not more else text)


class DocumentError(Exception):
    """The file is not valid; `problems` lists its errors, the first ones of too many."""

    def __init__(self, problems: Sequence[Problem]) -> None:
        listed = list(problems[:MAX_PROBLEMS])
        if len(problems) > MAX_PROBLEMS:
            listed.append(Problem("", f"and {len(problems) - MAX_PROBLEMS} more errors"))
        super().__init__("; ".join(map(str, listed)))
        self.problems = tuple(listed)


def join(path: str, key: object) -> str:
    """The path of a key below a path."""
    return f"{path}.{key}" if path else str(key)


class UnreadableError(DocumentError):
    """The file cannot be read at all: whether its content is valid is unknown."""


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
