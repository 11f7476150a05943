"""The probe `mounts` beside a user who interferes: how its runs end, and how many.

The long form of `tests/integration/test_mount_attacks.py`.
"""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from bench.measure import table
from integration.test_mount_attacks import Race, race_inside, race_of_another_user

SECONDS = 20.0
SEEDS = range(1, 5)


def main(folder: Path) -> None:
    """Print the table; a run that blames the mount ends it with AssertionError."""
    os.environ["NODE_NAME"] = "node-1"
    folder.chmod(0o711)
    outside = folder / "outside"
    outside.mkdir()
    (outside / "secret").write_text("secret")
    os.mkfifo(outside / "trap", 0o666)
    rows = []
    for title, attack in (("another user", race_of_another_user), ("same uid", race_inside)):
        for seed in SEEDS:
            scratch = folder / f"{attack.__name__}-{seed}"
            scratch.mkdir()
            options = "size=64m,mode=0777"
            subprocess.run(["mount", "-t", "tmpfs", "-o", options, "scratch", scratch], check=True)
            race: Race = attack(scratch, outside, SECONDS, seed)
            subprocess.run(["umount", "-l", scratch], check=True)
            counts = [race.reasons[""], race.reasons["interference"]]
            rows.append([title, str(seed), *map(str, counts), "0"])
    print(f"{SECONDS:.0f} s each.\n")
    table(["racer", "seed", "ok", "interference", "anything else"], rows)
