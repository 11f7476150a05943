"""What the rules predict of synthetic traces whose limit is known: warned in time, or for nothing?

TRACES of each shape (100), and SEED. tests/integration/test_prediction.py is the short form.
"""

from __future__ import annotations

import os
from pathlib import Path
from random import Random

from bench.measure import table
from testbed.trends.score import rows, scores
from testbed.trends.traces import Trace, traces
from testbed.trends.verdicts import verdicts

PART = 20
HEADER = (
    *("shape", "traces", "warned 3 days before", "warned for nothing"),
    *("days before, median", "limit within the range"),
)


def main(folder: Path) -> None:
    """Print the table."""
    random, given, found = Random(int(os.environ.get("SEED", "1"))), list[Trace](), []
    # In parts: promtool takes more than twice as long for twice as many series.
    for _ in range(0, int(os.environ.get("TRACES", "100")), PART):
        part = traces(random, PART)
        found += verdicts(folder, part)
        given += part
    table(HEADER, list(rows(scores(given, found))))
