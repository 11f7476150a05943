"""A healthy fleet with its noise for 24 hours, and the pages and warnings that the rules raise.

The long form of `tests/e2e/test_quiet_fleet.py`, which tests an hour.
"""

from __future__ import annotations

import time
from pathlib import Path

from e2e.test_quiet_fleet import WARNINGS, evaluate
from testbed.quiet import QuietFleet

NODES = 200
HOURS = 24


def main(folder: Path) -> None:
    """Print the result."""
    began = time.monotonic()
    done = evaluate(folder, QuietFleet(NODES, HOURS))
    verdict = "no page" if done.returncode == 0 else (done.stdout + done.stderr)[:3000]
    print(
        f"{NODES} nodes, {HOURS} hours: {verdict}; at most {WARNINGS} warnings; "
        f"{time.monotonic() - began:.0f} s of promtool\n"
    )
