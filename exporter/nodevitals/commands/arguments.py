"""The parser of every command. In: what a person typed. Out: options, or one error that helps.

An unknown word gets "did you mean"; options are never abbreviated: an abbreviation stops working
when an option is added.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterable
from typing import Any, NoReturn

from nodevitals.commands.terminal import STATUSES
from nodevitals.document import meant

# The help is also a page of the documents: as wide as they are, whatever the terminal.
WIDTH = 98
_UNKNOWN = "unrecognized arguments: "
_CHOICE = re.compile(r"argument (?P<name>[^:]*): invalid choice: '(?P<word>[^']*)'")
# The page of commands says more.
_MEANINGS = (f"{status} {text.partition(':')[0]}" for status, text in STATUSES.items())
EXIT_STATUS = f"Exit status: {', '.join(_MEANINGS)}."


class _Formatter(argparse.RawDescriptionHelpFormatter):
    """Keeps the lines of examples."""

    def __init__(self, prog: str) -> None:
        super().__init__(prog, max_help_position=30, width=WIDTH)


class Commands(argparse._SubParsersAction):  # type: ignore[type-arg]  # noqa: SLF001
    """The subcommands of a parser; the help of each is the description of its own page as well."""

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
    """The parser of a command; those of its subcommands are of this class as well."""

    def __init__(self, **more: Any) -> None:
        super().__init__(**{"formatter_class": _Formatter, "allow_abbrev": False, **more})
        self.register("action", "parsers", Commands)

    def subcommands(self) -> Commands | None:
        """The subcommands, if there are any."""
        return next((one for one in self._actions if isinstance(one, Commands)), None)

    def shown_actions(self) -> list[argparse.Action]:
        """The arguments that the help lists, positional ones first."""
        shown = [one for one in self._actions if one.help != argparse.SUPPRESS]
        return sorted(shown, key=lambda one: bool(one.option_strings))

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Parse all arguments: one that this parser does not know is its error, with its usage."""
        options, unknown = super().parse_known_args(args, namespace)
        if unknown:
            self.error(f"{_UNKNOWN}{' '.join(unknown)}")
        return options, []

    def _get_values(self, action: argparse.Action, arg_strings: list[str]) -> Any:
        """The values of an argument. Of `--option=--`, argparse makes an empty list."""
        if action.option_strings and arg_strings == ["--"]:
            raise argparse.ArgumentError(action, "-- is no value")
        return super()._get_values(action, arg_strings)

    def error(self, message: str) -> NoReturn:
        """Print the usage, the problem and what may have been meant; end with status 2."""
        super().error(f"{message}{self._suggestion(message)}")

    def _suggestion(self, message: str) -> str:
        if message.startswith(_UNKNOWN):
            word = message[len(_UNKNOWN) :].split()[0].partition("=")[0]
            return meant(word, self._option_string_actions)
        choice = _CHOICE.match(message)
        return meant(choice["word"], self._choices(choice["name"])) if choice else ""

    def _choices(self, name: str) -> Iterable[str]:
        """The values of the argument that a message calls by this name."""
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
        """The help; that of a command which runs ends with the meaning of its exit status."""
        text = super().format_help()
        return text if self.subcommands() else f"{text}\n{EXIT_STATUS}\n"
