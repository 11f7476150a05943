"""The agent's files: the shipped ones and what was found on the node in, texts out. Pure."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Sequence

from nodevitals.commands.init.expected import Expected
from nodevitals.commands.init.node import Node

_EXEC_START = "ExecStart=/usr/bin/nodevitals serve "
_INSTALL_NOTE = "# /usr/lib/systemd/system/nodevitals.service of the packages; without one, "
# Paths that the unit hides from the agent.
HIDDEN = ("/root", "/run/user")
OF_USERS = "/home"
_UNQUOTED = re.compile(r"[A-Za-z0-9_@+./:=,-]+")


def configuration(example: str, node: Node | None, found: Iterable[Expected]) -> str:
    """nodevitals.yaml: the example configuration with what is expected of this node."""
    if node is None:
        return example
    head = (
        f"# What is expected is what `nodevitals init` found on {node.name}, {node.date}: use this "
        "file\n# on nodes of the same hardware, and run it again on others.\n#\n"
    )
    first, _, rest = example.partition("\n")
    return f"{first}\n{head}{_with_expected(rest, {one.probe: one for one in found})}"


def _with_expected(example: str, found: dict[str, Expected]) -> str:
    """The example configuration with these keys set, each in the section of its probe."""
    lines, made = example.split("\n"), []
    probe = ""
    for line in lines:
        section = re.fullmatch(r"  ([a-z_]+):", line)
        probe = section[1] if section else probe
        one = found.get(probe)
        if one is None or not line.startswith(f"    #{one.key}:"):
            made.append(line)
        elif one.lines:
            made += [f"    {text}" for text in one.lines]
        else:
            made += [f"    # {one.remark}".rstrip(), line]
    return "\n".join(made)


def unit(shipped: str, command: Sequence[str]) -> str:
    """nodevitals.service that starts this command."""
    assert _EXEC_START in shipped
    words = " ".join(map(_unit_word, command))
    text = shipped.replace(_EXEC_START, f"ExecStart={words} serve ")
    return text.replace(_INSTALL_NOTE, "# Place: ")


def _unit_word(word: str) -> str:
    """A word of ExecStart, systemd.service(5)."""
    word = word.replace("%", "%%")
    if _UNQUOTED.fullmatch(word):
        return word
    escaped = word.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def groups_drop_in(groups: Sequence[str]) -> str:
    """The drop-in with which the agent may use the devices and sockets of these groups."""
    return (
        "# For /dev/davinci* (HwHiAiUser) and the socket of lldpd, where these groups exist.\n"
        f"[Service]\nSupplementaryGroups={' '.join(groups)}\n"
    )


def place_warnings(places: Iterable[str], *, installed: bool) -> list[str]:
    """Why a unit cannot start, or should not, what lies at these places (resolved paths)."""
    places = set(places)
    warnings = []
    remedy = "install it elsewhere: PIPX_HOME=/opt/pipx PIPX_BIN_DIR=/usr/local/bin pipx install …"
    if not installed:
        warnings.append(f"nodevitals runs from a checkout; the unit cannot find it: {remedy}")
    for path in sorted(one for one in places if not _below(one, places - {one})):
        if _below(path, HIDDEN):
            warnings.append(f"the unit hides {path} from the agent, which cannot start: {remedy}")
        elif _below(path, (OF_USERS,)):
            warnings.append(f"a user may change {path}, which the unit runs as root: {remedy}")
    return warnings


def _below(path: str, folders: Iterable[str]) -> bool:
    return any(os.path.commonpath((path, folder)) == folder for folder in folders)
