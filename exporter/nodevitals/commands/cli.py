"""The `nodevitals` command: arguments in, an exit status out.

0: done; 1: the command found something wrong, or failed with one line per problem on stderr;
2: wrong usage; 130: interrupted.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from importlib import import_module

from nodevitals import __version__
from nodevitals.commands.terminal import CommandError

# The module of each command; its add_to(subparsers) adds the arguments and sets `run`.
COMMANDS = {
    "serve": "nodevitals.commands.serve",
    "probe": "nodevitals.commands.run_probe",
    "check-config": "nodevitals.commands.check_config",
    "metrics": "nodevitals.commands.metrics",
    "history": "nodevitals.commands.history",
    "doctor": "nodevitals.commands.doctor.command",
    "maintenance": "nodevitals.commands.maintenance",
    "fabric": "nodevitals.commands.fabric.commands",
    "rules": "nodevitals.commands.rules.commands",
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command. Returns its exit status."""
    given = sys.argv[1:] if arguments is None else arguments
    options = _parser(given).parse_args(given)
    try:
        status: int = options.run(options)
        sys.stdout.flush()
        return status
    except CommandError as error:
        print(error, file=sys.stderr)
        return 1
    except BrokenPipeError:  # the reader of the output has exited, as `| head` does
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        return 1
    except KeyboardInterrupt:
        return 130


def _parser(given: Sequence[str]) -> argparse.ArgumentParser:
    """The parser of the command in `given`, or of every command where it names none.

    Only the modules of these commands are imported: `serve` must not pay for the others.
    """
    parser = argparse.ArgumentParser(
        prog="nodevitals", description="Per-node health exporter for AI clusters."
    )
    parser.add_argument("--version", action="version", version=f"nodevitals {__version__}")
    subparsers = parser.add_subparsers(required=True, metavar="COMMAND")
    named = given[0] if given else ""
    for module in [COMMANDS[named]] if named in COMMANDS else COMMANDS.values():
        import_module(module).add_to(subparsers)
    return parser
