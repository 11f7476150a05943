"""What every command shares: a problem in one line, and a table for people."""

from __future__ import annotations

from collections.abc import Sequence


class CommandError(Exception):
    """What is wrong, one line a problem; the command ends with status 1."""


def print_table(head: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    """Print rows under their head, in columns as wide as they must be."""
    table = [tuple(map(str, row)) for row in (head, *rows)]
    widths = [max(len(row[column]) for row in table) for column in range(len(head))]
    for row in table:
        cells = (cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        print("  ".join(cells).rstrip())
