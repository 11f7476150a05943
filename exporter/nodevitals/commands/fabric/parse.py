"""`nodevitals fabric parse`: the results in a tool's output, as JSON."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from nodevitals.commands.terminal import CommandError, Subparsers, print_json
from nodevitals.probes.fabric.tools import PARSERS


def add_to(subparsers: Subparsers) -> None:
    """Add the subcommand."""
    parser = subparsers.add_parser(
        "parse",
        help="print the results in a tool's output as JSON; status 1 if the test failed",
        epilog="example:\n  all_reduce_perf -b 1G -e 1G | nodevitals fabric parse nccl -",
    )
    parser.add_argument("tool", choices=sorted(PARSERS), help="the tool that wrote it: %(choices)s")
    parser.add_argument("file", metavar="FILE", help="the output of the tool; - for standard input")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Print the report; 1 where the test failed."""
    try:
        content = (
            sys.stdin.buffer.read() if options.file == "-" else Path(options.file).read_bytes()
        )
    except OSError as error:
        raise CommandError(f"{options.file}: {error.strerror}") from None
    report = PARSERS[options.tool](content.decode(errors="replace"))
    print_json(report)
    return int(report.outcome != "ok")
