"""`nodevitals fabric plan`: the pairings of a slot, or of one node for a day."""

from __future__ import annotations

import argparse
import time

import msgspec

from nodevitals.commands.fabric.options import fabric_settings, listed_members
from nodevitals.commands.terminal import (
    CommandError,
    Subparsers,
    local_time,
    print_json,
    print_table,
)
from nodevitals.probes.fabric.members import Pairing, Roster, roster_of

DAY_SECONDS = 86400.0


def add_to(subparsers: Subparsers) -> None:
    """Add the subcommand."""
    parser = subparsers.add_parser(
        "plan", help="print which nodes test each other in a slot, by a configuration's lists"
    )
    add = parser.add_argument
    add(
        "--config.file",
        dest="config",
        metavar="FILE",
        required=True,
        help="configuration with the lists of peers (needed)",
    )
    add("--slot", type=int, metavar="N", help="number of the slot (default: the current one)")
    add(
        "--node",
        metavar="NAME",
        help="only this node, for a day of slots (default: all)",
    )
    add("--json", action="store_true", help="one JSON array")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Print the pairings."""
    settings = fabric_settings(options.config)
    roster = roster_of(listed_members(settings, options.config), settings.across_pairs)
    first = int(time.time() // settings.slot) if options.slot is None else options.slot
    rows = _pairings(roster, options.node, first, int(DAY_SECONDS // settings.slot))
    if options.json:
        records = [
            {"slot": slot, "begins": slot * settings.slot, **msgspec.structs.asdict(pairing)}
            for slot, pairing in rows
        ]
        print_json(records)
        return 0
    print_table(
        ("SLOT", "BEGINS", "SOURCE", "TARGET"),
        [
            (slot, local_time(slot * settings.slot), pairing.source, pairing.target)
            for slot, pairing in rows
        ],
    )
    return 0


def _pairings(
    roster: Roster, node: str | None, first: int, count: int
) -> list[tuple[int, Pairing]]:
    """All pairings of the first slot, or one node's pairings of so many slots."""
    if node is None:
        return [(first, pairing) for pairing in roster.pairings(first)]
    if node not in roster:
        raise CommandError(f"{node} is not among the {len(roster)} peers")
    pairings = ((slot, roster.pairing(node, slot)) for slot in range(first, first + count))
    return [(slot, pairing) for slot, pairing in pairings if pairing is not None]
