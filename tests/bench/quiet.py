"""A quiet day: 24 hours of a healthy fleet with its noise, and what the rules make of it.

The long form of `tests/e2e/test_quiet_day.py`: that one asserts on an hour of 200 nodes.
"""

from __future__ import annotations

import time
from pathlib import Path

from e2e.test_quiet_day import WARNINGS, judge
from testbed.quiet import Quiet

NODES = 200
HOURS = 24


def main(folder: Path) -> None:
    """Print whether it was quiet."""
    began = time.monotonic()
    done = judge(folder, Quiet(NODES, HOURS))
    verdict = "no page" if done.returncode == 0 else (done.stdout + done.stderr)[:3000]
    print(
        f"{NODES} nodes, {HOURS} hours: {verdict}; at most {WARNINGS} warnings; "
        f"{time.monotonic() - began:.0f} s of promtool\n"
    )
