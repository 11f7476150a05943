"""`nodevitals check-config FILE`: print the errors of the configuration files, and warnings."""

from __future__ import annotations

import argparse

from nodevitals.commands.options import add_strict_option, add_web_config_option, files_of
from nodevitals.commands.terminal import (
    COULD_NOT_TELL,
    FOUND_WRONG,
    CommandError,
    Subparsers,
    print_warnings,
)
from nodevitals.engine.configuration import load

EXAMPLES = """\
examples:
  nodevitals check-config /etc/nodevitals/nodevitals.yaml
  nodevitals check-config nodevitals.yaml --web.config.file web.yaml

A message begins with FILE:LINE:COLUMN and the key. Warnings also name files, folders and programs
of settings that are not on this machine; run it as root, or as the user of the service."""


def add_to(commands: Subparsers) -> None:
    """Add `check-config` to the command line."""
    parser = commands.add_parser(
        "check-config", help="print every error of the configuration files", epilog=EXAMPLES
    )
    parser.add_argument("file", metavar="FILE", nargs="?", help="the configuration of serve")
    add_web_config_option(parser)
    add_strict_option(parser)
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Load the files as `serve` does."""
    if options.file is None and options.web_config is None:
        raise CommandError("name a FILE, or --web.config.file FILE")
    loaded = load(files_of(options.file, options.web_config), look=True)
    if loaded.errors:
        status = FOUND_WRONG if loaded.invalid else COULD_NOT_TELL
        raise CommandError("\n".join(loaded.errors), status)
    print_warnings(loaded.warnings, strict=options.strict)
    for file in filter(None, (options.file, options.web_config)):
        print(f"{file}: ok")
    return 0
