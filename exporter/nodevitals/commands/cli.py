"""The `nodevitals` command: arguments in, an exit status out (`terminal.STATUSES`).

For an unknown word, the error suggests a known one. Options cannot be abbreviated: an abbreviation
would stop working when an option is added.
"""

from __future__ import annotations

import argparse
import errno
import io
import os
import re
import sys
from collections.abc import Iterable, Sequence
from importlib import import_module
from typing import Any, NoReturn

from nodevitals import __version__
from nodevitals.commands.terminal import COULD_NOT_TELL, INTERRUPTED, STATUSES, CommandError
from nodevitals.document import meant

# The module of each command; its add_to(subparsers) adds the arguments and sets `run`.
COMMANDS = {
    "serve": "nodevitals.commands.serve",
    "hub": "nodevitals.commands.hub.command",
    "init": "nodevitals.commands.init.command",
    "probe": "nodevitals.commands.run_probe",
    "check-config": "nodevitals.commands.check_config",
    "metrics": "nodevitals.commands.metrics",
    "history": "nodevitals.commands.history",
    "doctor": "nodevitals.commands.doctor.command",
    "preflight": "nodevitals.commands.preflight.command",
    "selfcheck": "nodevitals.commands.selfcheck",
    "maintenance": "nodevitals.commands.maintenance",
    "profile": "nodevitals.commands.profile",
    "fabric": "nodevitals.commands.fabric.commands",
    "fast": "nodevitals.commands.hub.fast",
    "drill": "nodevitals.commands.hub.drill",
    "rules": "nodevitals.commands.rules.commands",
    "completion": "nodevitals.commands.completion",
}
# The groups of commands in the help; a command without a group comes last.
GROUPS = {
    "set up": ("init", "check-config", "doctor", "completion"),
    "this node": (
        *("serve", "probe", "preflight", "selfcheck", "profile", "history"),
        *("maintenance", "metrics"),
    ),
    "the cluster": ("hub", "fabric", "fast", "drill", "rules"),
}
# The help is also a page of the documentation: it has that width on every terminal.
WIDTH = 98
_UNKNOWN = "unrecognized arguments: "
_CHOICE = re.compile(r"argument (?P<name>[^:]*): invalid choice: '(?P<word>[^']*)'")
# docs/commands.md has the complete meanings.
_MEANINGS = (f"{status} {text.partition(':')[0]}" for status, text in STATUSES.items())
EXIT_STATUS = f"Exit status: {', '.join(_MEANINGS)}."


class _Formatter(argparse.RawDescriptionHelpFormatter):
    """Keeps the line breaks of examples."""

    def __init__(self, prog: str) -> None:
        super().__init__(prog, max_help_position=30, width=WIDTH)


class Commands(argparse._SubParsersAction):  # type: ignore[type-arg]  # noqa: SLF001
    """The subcommands of a parser; the help of each is also the description in its own help."""

    def __init__(self, *positional: Any, **more: Any) -> None:
        super().__init__(*positional, **more)
        self.helps: dict[str, str] = {}

    def add_parser(self, name: str, **more: Any) -> Any:
        """Add a subcommand."""
        text = self.helps[name] = more.get("help", "")
        if text:
            more.setdefault("description", f"{text[0].upper()}{text[1:]}.")
        return super().add_parser(name, **more)


class Parser(argparse.ArgumentParser):
    """The parser of a command; parsers of its subcommands have this class as well."""

    def __init__(self, **more: Any) -> None:
        super().__init__(**{"formatter_class": _Formatter, "allow_abbrev": False, **more})
        self.register("action", "parsers", Commands)

    def subcommands(self) -> Commands | None:
        """The subcommands, if there are any."""
        return next((action for action in self._actions if isinstance(action, Commands)), None)

    def shown_actions(self) -> list[argparse.Action]:
        """The arguments that the help lists, positional ones first."""
        shown = [action for action in self._actions if action.help != argparse.SUPPRESS]
        return sorted(shown, key=lambda action: bool(action.option_strings))

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Parse all arguments; an unknown one is an error of this parser, with its usage."""
        options, unknown = super().parse_known_args(args, namespace)
        if unknown:
            self.error(f"{_UNKNOWN}{' '.join(unknown)}")
        return options, []

    def _get_values(self, action: argparse.Action, arg_strings: list[str]) -> Any:
        """The values of an argument. argparse itself turns `--option=--` into an empty list."""
        if action.option_strings and arg_strings == ["--"]:
            raise argparse.ArgumentError(action, "-- is no value")
        return super()._get_values(action, arg_strings)

    def error(self, message: str) -> NoReturn:
        """Print the usage, the problem and a suggestion; end with status 2."""
        super().error(f"{message}{self._suggestion(message)}")

    def _suggestion(self, message: str) -> str:
        if message.startswith(_UNKNOWN):
            word = message[len(_UNKNOWN) :].split()[0].partition("=")[0]
            return meant(word, self._option_string_actions)
        choice = _CHOICE.match(message)
        return meant(choice["word"], self._choices(choice["name"])) if choice else ""

    def _choices(self, name: str) -> Iterable[str]:
        """The allowed values of the argument that a message calls by this name."""
        return next(
            (
                list(map(str, action.choices))
                for action in self._actions
                if action.choices is not None
                and name in ("/".join(action.option_strings), action.metavar, action.dest)
            ),
            [],
        )

    def format_help(self) -> str:
        """The help; for a command that runs, it ends with the meaning of the exit status."""
        text = super().format_help()
        return text if self.subcommands() else f"{text}\n{EXIT_STATUS}\n"


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
    """Discard output to a closed stream: otherwise the next opened file would be standard output.
    Escape characters that the locale's encoding lacks (°C, bytes of a path).
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

    Only the modules of these commands are imported, so that `serve` needs less memory.
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
