"""`nodevitals probe NAME`: run one probe once and print what it exposes."""

from __future__ import annotations

import argparse
import logging
import os
import sys
from typing import NoReturn

from nodevitals import probes
from nodevitals.agent import run_once
from nodevitals.commands.options import add_node_options, host_of, load_config
from nodevitals.commands.terminal import CommandError, Subparsers


def add_to(commands: Subparsers) -> None:
    """Add `probe` to the command line."""
    parser = commands.add_parser("probe", help="run one probe once and print what it exposes")
    parser.add_argument("name", metavar="NAME")
    add_node_options(parser)
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> NoReturn:
    """Print the exposition on stdout and failures on stderr.

    Ends the process: with status 0, or 1 where a target failed. An absent target is no failure.
    """
    if options.name not in probes.registered():
        known = ", ".join(probes.registered())
        raise CommandError(f"unknown probe {options.name!r}; known probes: {known}")
    logging.getLogger().addHandler(logging.NullHandler())  # failures are printed below
    text, results = run_once(host_of(options), load_config(options.config), options.name)
    print(text, end="")
    failed = False
    for target, result in results.items():
        outcome, message = result.outcome, result.text
        if outcome not in ("ok", "absent"):
            failed = True
            print(f"{options.name} {target}: {result.reason}: {message}", file=sys.stderr)
            print(result.trace, end="", file=sys.stderr)
        elif outcome == "absent":
            print(f"{options.name} {target}: absent: {message}", file=sys.stderr)
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(int(failed))  # the exit hooks would wait for a stuck child
