"""What is wrong with a file: each problem with its path and line."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

# Of a file with thousands of errors, the first are enough to repair it.
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


class DocumentError(Exception):
    """The file is not valid; `problems` lists every error, of too many the first."""

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
