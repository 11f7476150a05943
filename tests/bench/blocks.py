"""How many blocks of code of the pages are run, read by their reader, or neither and say so.

In: the pages. Out: a table of kinds of blocks and what tests do with them; seconds.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from bench.measure import table
from testbed.pageblocks import FATES, all_blocks, fate


def main(_folder: Path) -> None:
    """Print the table. The first block that its reader refuses is an error."""
    found = Counter((one.kind, fate(page, one)) for page, one in all_blocks())
    kinds = sorted({kind for kind, _ in found})
    counts = {one: [found[kind, one] for kind in kinds] for one in FATES}
    counts["in all"] = [sum(column) for column in zip(*counts.values(), strict=True)]
    rows = [[one, *map(str, row), str(sum(row))] for one, row in counts.items()]
    table(["blocks", *kinds, "in all"], rows)
