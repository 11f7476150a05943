"""`nodevitals fabric parse | plan | check | collective`."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import msgspec

from nodevitals.fabric.tools import PARSERS
from nodevitals.terminal import CommandError


def add_to(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add `fabric` and its actions to the command line."""
    parser = commands.add_parser("fabric", help="bandwidth tests: plan, parse")
    actions = parser.add_subparsers(required=True, metavar="ACTION")
    parse = actions.add_parser("parse", help="what a tool printed, as JSON; exit 1 if it failed")
    parse.add_argument("tool", choices=sorted(PARSERS))
    parse.add_argument("file", metavar="FILE", help="- for standard input")
    parse.set_defaults(run=_parse)


def _parse(options: argparse.Namespace) -> int:
    try:
        content = (
            sys.stdin.buffer.read() if options.file == "-" else Path(options.file).read_bytes()
        )
    except OSError as error:
        raise CommandError(f"{options.file}: {error.strerror}") from None
    report = PARSERS[options.tool](content.decode(errors="replace"))
    print(msgspec.json.format(msgspec.json.encode(report), indent=2).decode())
    return int(report.outcome != "ok")
