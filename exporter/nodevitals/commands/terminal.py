"""What every command shares: the error that ends it, tables for people, JSON for programs."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any

import msgspec

from nodevitals.document import DocumentError

# What add_subparsers() returns; argparse has no public name for it.
if TYPE_CHECKING:
    Subparsers = argparse._SubParsersAction[argparse.ArgumentParser]  # noqa: SLF001
else:
    Subparsers = argparse._SubParsersAction  # noqa: SLF001


class CommandError(Exception):
    """Ends the command with status 1; the text is printed on stderr, one line per problem."""


def document_error(file: str | None, error: DocumentError) -> CommandError:
    """The error of a file that cannot be used: one line per problem, with the file and the line."""
    return CommandError("\n".join(problem.within(str(file)) for problem in error.problems))


def print_table(head: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    """Print rows below their head, in columns as wide as their widest cell."""
    table = [tuple(map(str, row)) for row in (head, *rows)]
    widths = [max(len(row[column]) for row in table) for column in range(len(head))]
    for row in table:
        cells = (cell.ljust(width) for cell, width in zip(row, widths))
        print("  ".join(cells).rstrip())


def print_json(value: Any) -> None:
    """Print a value that msgspec can encode, indented."""
    print(msgspec.json.format(msgspec.json.encode(value), indent=2).decode())


def local_time(seconds: float) -> str:
    """A time (seconds since the epoch) in the local zone, for people."""
    return datetime.fromtimestamp(seconds, timezone.utc).astimezone().isoformat(" ", "seconds")
