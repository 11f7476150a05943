"""A megabyte of hostile texts for every parser: CPU time, and how it grows with the text."""

from __future__ import annotations

import time
from contextlib import suppress
from pathlib import Path

from bench.measure import table
from testbed.hostile import PARSED, Parser, hostile_texts

SIZE = 1 << 20
SMALLER = 4


def main(_folder: Path) -> None:
    """Print the table."""
    rows = []
    for name, parser in PARSED.items():
        small = _slowest(parser, SIZE // SMALLER)
        large = _slowest(parser, SIZE)
        rows.append([name, f"{small:.3f} s", f"{large:.3f} s", f"{large / small:.1f}"])
    print(
        f"CPU time of the slowest text; {SMALLER} times the text takes {SMALLER} times as long.\n"
    )
    table(["parser", f"{SIZE // SMALLER >> 10} KiB", f"{SIZE >> 10} KiB", "ratio"], rows)


def _slowest(parser: Parser, size: int) -> float:
    slowest = 0.0
    for text in hostile_texts(parser, size):
        before = time.process_time()
        with suppress(*parser.errors):
            parser.parse(text)
        slowest = max(slowest, time.process_time() - before)
    return slowest
