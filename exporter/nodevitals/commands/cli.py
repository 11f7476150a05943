"""The `nodevitals` command: arguments in, an exit status out (`terminal.STATUSES`)."""

from __future__ import annotations

import errno
import io
import os
import sys
from collections.abc import Sequence
from importlib import import_module

from nodevitals import __version__
from nodevitals.commands.arguments import Parser
from nodevitals.commands.terminal import COULD_NOT_TELL, INTERRUPTED, CommandError

# The module of each command; its add_to(subparsers) adds the arguments and sets `run`.
COMMANDS = {
    "serve": "nodevitals.commands.serve",
    "hub": "nodevitals.commands.hub",
    "init": "nodevitals.commands.init.command",
    "probe": "nodevitals.commands.run_probe",
    "check-config": "nodevitals.commands.check_config",
    "metrics": "nodevitals.commands.metrics",
    "history": "nodevitals.commands.history",
    "doctor": "nodevitals.commands.doctor.command",
    "preflight": "nodevitals.commands.preflight.command",
    "selfcheck": "nodevitals.commands.selfcheck",
    "maintenance": "nodevitals.commands.maintenance",
    "profile": "nodevitals.commands.profile.commands",
    "fabric": "nodevitals.commands.fabric.commands",
    "fast": "nodevitals.commands.fast",
    "drill": "nodevitals.commands.drill",
    "rules": "nodevitals.commands.rules.commands",
    "completion": "nodevitals.commands.completion",
}
# How the help lists them; a command that is in no group comes last.
GROUPS = {
    "set up": ("init", "check-config", "doctor", "completion"),
    "this node": (
        *("serve", "probe", "preflight", "selfcheck", "profile", "history"),
        *("maintenance", "metrics"),
    ),
    "the cluster": ("hub", "fabric", "fast", "drill", "rules"),
}


class _TopParser(Parser):
    """The parser of `nodevitals` itself: its help lists the commands in groups."""

    def format_help(self) -> str:
        commands = self.subcommands()
        helps = {} if commands is None else commands.helps
        grouped = {name for names in GROUPS.values() for name in names}
        groups = {**GROUPS, "other": tuple(name for name in helps if name not in grouped)}
        lines = [self.format_usage(), f"{self.description}"]
        for title, names in groups.items():
            present = [f"    {name:<14}{helps[name]}" for name in names if name in helps]
            lines += ["", f"{title}:", *present] if present else []
        lines += ["", "options:", "    -h, --help    print this help, or that of a COMMAND"]
        return "\n".join([*lines, "    --version     print the version", "", f"{self.epilog}", ""])


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command. Returns its exit status."""
    _open_streams()
    given = sys.argv[1:] if arguments is None else arguments
    options = parser_of(given).parse_args(given)
    try:
        status: int = options.run(options)
        sys.stdout.flush()
        return status
    except CommandError as error:
        print(error, file=sys.stderr)
        return error.status
    except BrokenPipeError:  # the reader of the output has exited, as `| head` does
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        return COULD_NOT_TELL
    except OSError as error:
        if error.errno != errno.ENOSPC or error.filename is not None:
            raise
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        print(f"standard output: {error.strerror}", file=sys.stderr)
        return COULD_NOT_TELL
    except KeyboardInterrupt:
        return INTERRUPTED


def _open_streams() -> None:
    """Output that was closed is discarded: else the next file that is opened would be standard
    output. What the locale's encoding lacks (°C, a path that is no text) is escaped.
    """
    if sys.stdout is None or sys.stderr is None:
        while (descriptor := os.open(os.devnull, os.O_RDWR)) <= 2:
            pass
        os.close(descriptor)
    sys.stdout = sys.stdout or open(1, "w", encoding="utf-8", closefd=False)  # noqa: SIM115
    sys.stderr = sys.stderr or open(2, "w", encoding="utf-8", closefd=False)  # noqa: SIM115
    keeps_bytes = ("utf-8", "surrogateescape")
    out = sys.stdout
    if isinstance(out, io.TextIOWrapper) and (out.encoding, out.errors) != keeps_bytes:
        out.reconfigure(errors="backslashreplace")


def parser_of(given: Sequence[str]) -> Parser:
    """The parser of the command in `given`, or of every command where it names none.

    Only the modules of these commands are imported: `serve` must not pay for the others.
    """
    parser = _TopParser(
        prog="nodevitals",
        description="Per-node health exporter for AI clusters.",
        epilog="Help on a command: nodevitals COMMAND --help",
    )
    version = f"nodevitals {__version__}"
    parser.add_argument("--version", action="version", version=version, help="print the version")
    subparsers = parser.add_subparsers(required=True, metavar="COMMAND", parser_class=Parser)
    named = given[0] if given else ""
    for module in [COMMANDS[named]] if named in COMMANDS else COMMANDS.values():
        import_module(module).add_to(subparsers)
    return parser
