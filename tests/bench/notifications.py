"""Kills of a hub while it delivers 1,000 notifications: lost and repeated ones."""

from __future__ import annotations

from pathlib import Path

from testbed.notifykills import kill_while_notifying

MESSAGES, KILLS = 500, 50


def main(folder: Path) -> None:
    """Print what became of the notifications."""
    outcome = kill_while_notifying(folder, MESSAGES, KILLS, seed=2026)
    share = outcome.duplicates / outcome.deliveries
    print("kill -9 while notifications are delivered, two channels:")
    print(f"  deliveries  {outcome.deliveries}")
    print(f"  kills       {outcome.kills}")
    print(f"  lost        {outcome.lost}")
    print(f"  duplicates  {outcome.duplicates}  ({share:.2%})")
