"""`nodevitals check-config FILE`: print every error of a configuration file."""

from __future__ import annotations

import argparse

from nodevitals.commands.options import load_config
from nodevitals.commands.terminal import Subparsers


def add_to(commands: Subparsers) -> None:
    """Add `check-config` to the command line."""
    parser = commands.add_parser("check-config", help="print every error of a configuration file")
    parser.add_argument("file", metavar="FILE")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Load the file; its errors end the command with status 1."""
    load_config(options.file)
    print(f"{options.file}: ok")
    return 0
