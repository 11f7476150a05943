"""The completions and the man page, made from the parsers by shtab and argparse-manpage."""

from __future__ import annotations

import argparse
import os
import re
from collections.abc import Iterator

import shtab
from argparse_manpage.manpage import Manpage

from nodevitals import __version__, probes
from nodevitals.commands.cli import EXIT_STATUS, Parser, parser_of

FILES = ("FILE", "PATH")
FOLDERS = ("DIRECTORY", "FOLDER", "DIR")
_USAGE = re.compile(r"^usage:.*?\n\n", re.MULTILINE | re.DOTALL)
# Deterministic: argparse wraps at the width of the terminal, and the page has a date.
SURROUNDINGS = {"COLUMNS": "100", "SOURCE_DATE_EPOCH": "0"}


def _actions(parser: argparse.ArgumentParser) -> Iterator[argparse.Action]:
    for action in parser._actions:  # noqa: SLF001
        yield action
        for below in action.choices.values() if isinstance(action.choices, dict) else ():
            yield from _actions(below)


def _with_completions() -> Parser:
    """The parser of all commands, in which values are probes, files or folders."""
    parser = parser_of(())
    for action in _actions(parser):
        if action.metavar in FILES:
            action.complete = shtab.FILE  # type: ignore[attr-defined]
        elif action.metavar in FOLDERS:
            action.complete = shtab.DIRECTORY  # type: ignore[attr-defined]
    return parser


def completion(shell: str) -> str:
    """The completion script of a shell."""
    parser = _with_completions()
    subcommands = parser.subcommands()
    assert subcommands is not None
    probe = subcommands.choices["probe"]
    name = next(one for one in probe.shown_actions() if one.dest == "name")
    name.choices = sorted(probes.registered())
    return str(shtab.complete(parser, shell=shell)).rstrip() + "\n"


def man_page() -> str:
    """nodevitals(1)."""
    os.environ.update(SURROUNDINGS)
    parser = parser_of(())
    parser.epilog = EXIT_STATUS
    data = {
        "project_name": "nodevitals",
        "version": __version__,
        "description": "health exporter for the nodes of AI clusters",
        "manual_title": "nodevitals",
    }
    # The lines of usage repeat the options, and every Python breaks them at other places.
    return _USAGE.sub("", str(Manpage(parser, data)))
