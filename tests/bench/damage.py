"""A database with one changed byte, for every few bytes of it: what is lost, and what survives."""

from __future__ import annotations

import logging
from pathlib import Path

from bench.measure import table
from testbed.statefile import DamagedState, changed

STRIDE = 11
BITS = (0x01, 0x80, 0xFF)


def main(folder: Path) -> None:
    """Print the table. An agent that exposes a wrong counter raises AssertionError."""
    logging.disable()
    state = DamagedState(folder)
    rows = []
    for bits in BITS:
        offsets = range(0, len(state.original), STRIDE)
        reported = sum(bool(state.lost_after(changed(state.original, at, bits))) for at in offsets)
        figures = (len(offsets), reported, len(offsets) - reported, 0)
        rows.append([f"{bits:#04x}", *map(str, figures)])
    logging.disable(logging.NOTSET)
    print(f"One changed byte in {len(state.original)} bytes; each start is checked.\n")
    table(["bits", "starts", "loss reported", "nothing lost", "wrong or unreported"], rows)
