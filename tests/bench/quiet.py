"""A healthy fleet with its noise for 24 hours, and the pages and tickets that it raises.

The long form of `tests/e2e/test_quiet_fleet.py`, which tests an hour.
"""

from __future__ import annotations

import time
from pathlib import Path

from e2e.test_quiet_fleet import TICKETS, evaluate
from testbed.quiet import QuietFleet

NODES = 200
HOURS = 24
# Six minutes for the notifications.
SPEED = 240.0


def main(folder: Path) -> None:
    """Print the result."""
    began = time.monotonic()
    outcome = evaluate(folder, QuietFleet(NODES, HOURS), SPEED)
    print(
        f"{NODES} nodes, {HOURS} hours: {outcome.text()}; in an hour at most {TICKETS} tickets are "
        f"allowed; {time.monotonic() - began:.0f} s\n"
    )
    print("\n".join(outcome.titles()[:20]))
