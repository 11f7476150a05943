"""`nodevitals fabric parse | plan | check | collective`."""

from __future__ import annotations

from nodevitals.commands.fabric import check, collective, parse, plan
from nodevitals.commands.terminal import Subparsers


def add_to(commands: Subparsers) -> None:
    """Add `fabric` and its subcommands to the command line."""
    parser = commands.add_parser(
        "fabric", help="test the bandwidth between nodes, or plan and read such tests"
    )
    subparsers = parser.add_subparsers(required=True, metavar="ACTION")
    for subcommand in (parse, plan, check, collective):
        subcommand.add_to(subparsers)
