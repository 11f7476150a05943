"""`nodevitals history`: print the changes of this node's devices, or retire a device.

In: the history in the state directory, which `nodevitals serve` writes. Out: a table, JSON or CSV.
"""

from __future__ import annotations

import argparse
import csv
import os
import re
import sys
import time
from collections.abc import Sequence
from datetime import datetime

import msgspec

from nodevitals.commands.options import add_config_option, load_config
from nodevitals.commands.terminal import (
    FOUND_WRONG,
    CommandError,
    Subparsers,
    local_time,
    print_json,
    print_table,
)
from nodevitals.quantities import parse_duration
from nodevitals.state import database, tables
from nodevitals.state.records import Row

EXAMPLES = """\
examples:
  nodevitals history --since 7d
  nodevitals history --device GPU-5d1e0a3c --json
  nodevitals history forget GPU-5d1e0a3c"""


def add_to(commands: Subparsers) -> None:
    """Add `history` to the command line."""
    parser = commands.add_parser(
        "history",
        help="print the changes of this node's devices, or retire a device",
        epilog=EXAMPLES,
    )
    parser.add_argument(
        "action",
        nargs="?",
        choices=("show", "forget"),
        default="show",
        help="show prints the changes, forget DEVICE retires a device (default show)",
    )
    parser.add_argument("name", nargs="?", metavar="DEVICE", help="device to forget")
    add_config_option(parser)
    parser.add_argument(
        "--state-directory",
        metavar="DIRECTORY",
        help="directory of the history (default: state_directory of the configuration)",
    )
    parser.add_argument(
        "--since",
        metavar="TIME",
        help="only later changes: 1h, 7d, or 2026-01-31[T12:00:00] (default: all)",
    )
    parser.add_argument(
        "--device", metavar="DEVICE", help="only changes of this device (default: all)"
    )
    output = parser.add_mutually_exclusive_group()
    output.add_argument("--json", action="store_true", help="one JSON array")
    output.add_argument("--csv", action="store_true", help="comma-separated values with a head")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Print the history, or forget a device."""
    directory = options.state_directory or load_config(options.config).state_directory
    if directory is None:
        raise CommandError("state_directory is null: there is no history")
    try:
        if options.action == "forget":
            return _forget(directory, options.name)
        with tables.open_for_reading(directory) as connection:
            rows = database.query(connection, _since(options.since), options.device)
    except tables.ERRORS as error:
        raise CommandError(
            f"{directory}/{tables.FILE_NAME}: {error}; has `nodevitals serve` run on this node?"
        ) from None
    if options.json:
        print_json(database.as_records(rows))
    elif options.csv:
        writer = csv.writer(sys.stdout)
        writer.writerow(("time", "probe", "device", "state", "detail"))
        writer.writerows(msgspec.structs.astuple(row) for row in rows)
    else:
        _print_rows(rows)
    return 0


def _print_rows(rows: Sequence[Row]) -> None:
    print_table(
        ("TIME", "PROBE", "DEVICE", "STATE", "DETAIL"),
        [(local_time(row.time), row.probe, row.device, row.state, row.detail) for row in rows],
    )


def _forget(directory: str, device: str | None) -> int:
    if device is None:
        raise CommandError("history forget: name the device")
    if not os.path.exists(os.path.join(directory, tables.FILE_NAME)):
        raise CommandError(f"{directory}: no history here")
    connection = tables.connect(directory)
    known_by = database.forget(connection, device, time.time())
    connection.close()
    if not known_by:
        raise CommandError(f"{device}: not in the history of this node", FOUND_WRONG)
    print(f"{device}: forgotten ({', '.join(known_by)})")
    return 0


def _since(text: str | None) -> float:
    """Unix time of `1h` ago or of a date; 0 for None."""
    if text is None:
        return 0.0
    if re.fullmatch(r"\d.*[smhd]", text):
        try:
            return time.time() - parse_duration(text)
        except ValueError as error:
            raise CommandError(f"--since: {error}") from None
    try:
        return datetime.fromisoformat(text).timestamp()
    except ValueError:
        raise CommandError(f"--since: {text!r} is neither like 1h nor like 2026-01-31") from None
