"""Generates docs/commands.md, the completions and the man page from the parsers.

In: the parser of all commands. Out: their texts. Only `make generate` imports it.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator

from nodevitals.commands.cli import Parser, parser_of
from nodevitals.commands.terminal import STATUSES

HEAD = """\
# Commands

`nodevitals COMMAND --help` prints the same on a node. A configuration is YAML:
[the example](../exporter/packaging/nodevitals.example.yaml) has every key. Names in the
examples are invented: tests parse the examples and do not run them.

## Exit statuses

| status | means |
|---|---|
"""


def leaves(parser: Parser) -> Iterator[Parser]:
    """The parsers of the commands that run, in the order of the help."""
    subcommands = parser.subcommands()
    if subcommands is None:
        yield parser
        return
    for below in subcommands.choices.values():
        yield from leaves(below)


def commands_page() -> str:
    """The text of docs/commands.md."""
    rows = "".join(f"| {status} | {meaning} |\n" for status, meaning in STATUSES.items())
    parser = parser_of(())
    return HEAD + rows + "".join(_section(command) for command in leaves(parser))


def _section(parser: Parser) -> str:
    lines = ["", f"## {parser.prog}", "", f"{parser.description}", ""]
    actions = [action for action in parser.shown_actions() if "--help" not in action.option_strings]
    if actions:
        lines += ["| argument | meaning |", "|---|---|"]
        lines += [f"| {_spelled(action)} | {_cell(_help(parser, action))} |" for action in actions]
    if parser.epilog:
        lines += ["", *_epilog(parser.epilog)]
    return "\n".join(lines).rstrip() + "\n"


def _spelled(action: argparse.Action) -> str:
    value = action.metavar if isinstance(action.metavar, str) else action.dest
    if action.choices is not None:
        value = ", ".join(map(str, action.choices))
    if not action.option_strings:
        return f"`{value}`"
    names = ", ".join(f"`{name}`" for name in action.option_strings)
    return names if action.nargs == 0 else f"{names} `{value}`"


def _help(parser: Parser, action: argparse.Action) -> str:
    choices = ", ".join(map(str, action.choices or ()))
    return (action.help or "") % {"choices": choices, "prog": parser.prog}


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("<", "&lt;")


def _epilog(text: str) -> Iterator[str]:
    """Examples as a block of commands, the rest as sentences."""
    examples = [line[2:] for line in text.splitlines() if line.startswith("  ")]
    if examples:
        yield "```sh"
        yield from examples
        yield "```"
        yield ""
    for line in text.splitlines():
        if line and not line.startswith(("  ", "example")):
            yield line
