"""A lock file beside a user who interferes with it: how often it is taken, and refused.

The long form of `tests/integration/test_lock_attacks.py`.
"""

from __future__ import annotations

from pathlib import Path

from bench.measure import table
from integration.test_lock_attacks import race

SECONDS = 20.0
SEEDS = range(1, 4)


def main(folder: Path) -> None:
    """Print the table; anything that root makes or opens elsewhere ends it with AssertionError."""
    rows = []
    for seed in SEEDS:
        place = folder / f"seed-{seed}"
        place.mkdir()
        outcomes = race(place, SECONDS, seed)
        others = sum(outcomes.values()) - outcomes["held"] - outcomes["lock"]
        rows.append([str(seed), str(outcomes["held"]), str(outcomes["lock"]), str(others)])
    print(f"{SECONDS:.0f} s each.\n")
    table(["seed", "taken", "refused", "anything else"], rows)
