"""The subcommands of `nodevitals fabric`."""

from __future__ import annotations

import argparse

from nodevitals.commands.fabric import check, collective, parse, plan


def add_to(parser: argparse.ArgumentParser) -> None:
    """Add the subcommands, each with its arguments."""
    subparsers = parser.add_subparsers(required=True, metavar="ACTION")
    for subcommand in (parse, plan, check, collective):
        subcommand.add_to(subparsers)
