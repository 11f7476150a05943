"""`nodevitals check-config FILE`: print every error of the configuration files."""

from __future__ import annotations

import argparse

from nodevitals.commands.options import files_of
from nodevitals.commands.terminal import CommandError, Subparsers
from nodevitals.engine.loading import load


def add_to(commands: Subparsers) -> None:
    """Add `check-config` to the command line."""
    parser = commands.add_parser(
        "check-config", help="print every error of the configuration files"
    )
    parser.add_argument("file", metavar="FILE", nargs="?", help="the configuration")
    parser.add_argument(
        "--web.config.file", dest="web_config", metavar="FILE", help="TLS and passwords"
    )
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Load the files as `serve` does; their errors end the command with status 1."""
    if options.file is None and options.web_config is None:
        raise CommandError("name a file, or --web.config.file")
    loaded = load(files_of(options.file, options.web_config))
    if loaded.errors:
        raise CommandError("\n".join(loaded.errors))
    for file in filter(None, (options.file, options.web_config)):
        print(f"{file}: ok")
    return 0
