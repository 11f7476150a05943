"""The names of the other nodes: lists as Slurm writes them, or a file. Text in, names out.

A prolog gives a list to root that a job's user may have had a hand in: its length, the ranges in it
and their digits are bounded before anything is expanded, and no list names a file.
"""

from __future__ import annotations

import re

from nodevitals.commands.doctor.findings import printable
from nodevitals.commands.terminal import CommandError
from nodevitals.document import DocumentError, read_file

MAX_NODES = 10_000
# As in the names of hosts; int() refuses or is slow where there are thousands.
_MAX_DIGITS = 9
_MAX_NAME = 253
_SHOWN = 60
_NAME = re.compile(r"[A-Za-z0-9_](?:[A-Za-z0-9_.:-]{0,251}[A-Za-z0-9_])?\Z")
_RANGES = re.compile(r"([A-Za-z0-9_.-]*)\[([0-9,-]+)\]([A-Za-z0-9_.-]*)")
_RANGE = re.compile(r"([0-9]+)(?:-([0-9]+))?")
# A comma within brackets is no end; brackets that do not match are a part, and refused later.
_PART = re.compile(r"(?:\[[^\]]*\]?|[^\[,\s])+")


def parse_nodes(text: str) -> list[str]:
    """The names in a list such as `gpu-[01-03,7],login1`, as Slurm writes it. Raises
    CommandError.
    """
    names: list[str] = []
    for match in _PART.finditer(text):
        part = match[0]
        found = _expanded(part) if "[" in part else [part]
        for name in found:
            if not _NAME.match(name):
                raise CommandError(f"--nodes: {_shown(name)} is not the name of a node")
        names += found
        if len(names) > MAX_NODES:
            raise CommandError(f"--nodes: over {MAX_NODES} names")
    return list(dict.fromkeys(names))


def short_name(name: str) -> str:
    """The name without its domain; that of an address is the address."""
    first, _, rest = name.partition(".")
    return name if first.isdigit() and rest else first


def nodes_of_file(path: str) -> list[str]:
    """The names in a file: a list, or a line per node. What is in a file that is no such list is
    not shown: it may be any file, and the output be read by others. Raises CommandError.
    """
    try:
        text = read_file(path).decode()
    except DocumentError as error:
        problem = error.problems[0].message
        raise CommandError(f"--nodes-file: {printable(path)}: {problem}") from None
    except UnicodeDecodeError:
        text = "\0"
    try:
        return parse_nodes(text)
    except CommandError:
        problem = "not a list of nodes: write a name per line"
        raise CommandError(f"--nodes-file: {printable(path)}: {problem}") from None


def _expanded(part: str) -> list[str]:
    match = _RANGES.fullmatch(part)
    problem = CommandError(f"--nodes: {_shown(part)} is not a list of nodes, as gpu-[1-8]")
    if match is None:
        raise problem
    before, ranges, after = match.groups()
    if len(before) + len(after) > _MAX_NAME:
        raise problem
    names: list[str] = []
    for one in ranges.split(","):
        found = _RANGE.fullmatch(one)
        if found is None:
            raise problem
        first, last = found[1], found[2] or found[1]
        if max(len(first), len(last)) > _MAX_DIGITS:
            raise problem
        count = int(last) - int(first) + 1
        if not 0 < count <= MAX_NODES - len(names):
            raise CommandError(f"--nodes: {_shown(part)} has no or too many nodes")
        names += [f"{before}{int(first) + n:0{len(first)}d}{after}" for n in range(count)]
    return names


def _shown(text: str) -> str:
    return repr(printable(text[: 4 * _SHOWN], _SHOWN))
