"""`nodevitals rules render FILE`: print sampled rules as Prometheus rules."""

from __future__ import annotations

import argparse
from pathlib import Path

from nodevitals.commands.rules.sampled_rules import parse, render
from nodevitals.commands.terminal import CommandError, Subparsers, document_error
from nodevitals.document import DocumentError


def add_to(actions: Subparsers) -> None:
    """Add `rules render` to the command line."""
    parser = actions.add_parser("render", help="print sampled rules as Prometheus rules")
    parser.add_argument("file", metavar="FILE")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Print the rule file."""
    try:
        print(render(parse(Path(options.file).read_bytes())), end="")
    except OSError as error:
        raise CommandError(f"{options.file}: {error.strerror}") from None
    except DocumentError as error:
        raise document_error(options.file, error) from None
    return 0
