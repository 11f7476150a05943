"""Shared by all commands: the error that ends a command, tables for people, JSON for programs."""

from __future__ import annotations

import argparse
import os
import sys
import unicodedata
from collections.abc import Sequence
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any

import msgspec

from nodevitals.document import DocumentError, UnreadableError

# What add_subparsers() returns; argparse has no public name for it.
if TYPE_CHECKING:
    Subparsers = argparse._SubParsersAction[argparse.ArgumentParser]  # noqa: SLF001
else:
    Subparsers = argparse._SubParsersAction  # noqa: SLF001

GOOD, FOUND_WRONG, COULD_NOT_TELL, INTERRUPTED = 0, 1, 2, 130
STATUSES = {
    GOOD: "good",
    FOUND_WRONG: "found something wrong",
    COULD_NOT_TELL: "could not tell: wrong usage, or a file or a server that cannot be read",
    INTERRUPTED: "interrupted",
}
# The colours of states in tables: good, doubtful, bad (SGR codes of ECMA-48).
_COLOURS = {
    **dict.fromkeys(("ok", "good", "healthy"), "32"),
    **dict.fromkeys(("absent", "unknown", "warning", "stale", "off"), "33"),
    **dict.fromkeys(("error", "timeout", "stuck", "failed", "problem", "slow", "wrong"), "31"),
}


class CommandError(Exception):
    """Ends the command with a status; the text is printed on stderr, one line per problem."""

    def __init__(self, text: str, status: int = COULD_NOT_TELL) -> None:
        super().__init__(text)
        self.status = status


def document_error(file: str | None, error: DocumentError) -> CommandError:
    """The error of an unusable file: one line per problem, with the file and the line. The status
    is "found wrong", unless the file could not be read.
    """
    status = COULD_NOT_TELL if isinstance(error, UnreadableError) else FOUND_WRONG
    lines = (problem.within(str(file)) for problem in error.problems)
    return CommandError("\n".join(lines), status)


def print_warnings(warnings: Sequence[str], *, strict: bool) -> None:
    """Print the warnings of a check; raise CommandError with them where they are errors."""
    if strict and warnings:
        raise CommandError("\n".join(warnings), FOUND_WRONG)
    for warning in warnings:
        print(f"warning: {warning}", file=sys.stderr)


def print_table(head: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    """Print rows below their head, in columns as wide as their widest cell. Words of states have
    colours on a terminal.
    """
    table = [tuple(printable(str(cell)) for cell in row) for row in (head, *rows)]
    widths = [max(_width(row[column]) for row in table) for column in range(len(head))]
    coloured = has_colours()
    for number, row in enumerate(table):
        cells = []
        for column, cell in enumerate(row):
            last = not any(row[column + 1 :])
            padding = "" if last else " " * (widths[column] - _width(cell) + 2)
            colour = _COLOURS.get(cell.lower()) if coloured and number else None
            cells.append((f"\033[{colour}m{cell}\033[0m" if colour else cell) + padding)
        print("".join(cells).rstrip())


def printable(text: str) -> str:
    """A text from a device or a server on one line: control characters as Python writes them."""
    if text.isprintable():
        return text
    return "".join(
        letter if letter.isprintable() else letter.encode("unicode_escape").decode()
        for letter in text
    )


def _width(text: str) -> int:
    """The columns of a terminal that a text takes: Chinese characters take two."""
    if text.isascii():
        return len(text)
    return sum(
        0 if unicodedata.combining(letter) else 1 + (unicodedata.east_asian_width(letter) in "WF")
        for letter in text
    )


def has_colours() -> bool:
    """Whether standard output is a terminal that shows colours, and https://no-color.org."""
    shows = os.environ.get("TERM", "dumb") != "dumb" and not os.environ.get("NO_COLOR")
    return shows and sys.stdout.isatty()


def print_json(value: Any) -> None:
    """Print a value that msgspec can encode, indented."""
    print(msgspec.json.format(msgspec.json.encode(value), indent=2).decode())


def local_time(seconds: float) -> str:
    """A time (seconds since the epoch) in the local zone, for people."""
    return datetime.fromtimestamp(seconds, timezone.utc).astimezone().isoformat(" ", "seconds")
