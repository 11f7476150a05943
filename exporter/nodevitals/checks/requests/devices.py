"""The devices of a check: names, patterns, or all.

In: the text of a request, and the devices that each node has. Out: names, or a problem.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from fnmatch import fnmatchcase
from typing import Optional

from nodevitals.checks import CheckError
from nodevitals.checks.requests.runs import words_of
from nodevitals.document import Problem
from nodevitals.errors import Wording
from nodevitals.quantities import shown

ALL = "all"
_WORD = re.compile(r"[a-zA-Z0-9*?[][a-zA-Z0-9._*?[\]-]{0,31}")
_NAME = re.compile(r"[a-zA-Z0-9][a-zA-Z0-9._-]{0,31}")
_DIGITS = re.compile(r"(\d+)")


def problem_of(text: str, several: bool) -> Optional[Wording]:
    """Why the text of a request cannot be one device or, where these may be `several`, more."""
    if not several:
        if _NAME.fullmatch(text):
            return None
        return Wording("{value} is no device: write it like mlx5_0", value=shown(text))
    for word in words_of(text):
        if not _WORD.fullmatch(word):
            return Wording(
                "{value} is no device: write mlx5_0, a list mlx5_0,mlx5_1, a pattern mlx5_* or all",
                value=shown(word),
            )
    return None


def is_complete(text: str) -> bool:
    """Whether the text names each device."""
    return text != ALL and not any(mark in text for mark in "*?[")


def expanded(text: str, nodes: Iterable[Mapping[str, bool]]) -> str:
    """The list of the devices that the text means. `nodes` has for each node its devices, and
    whether each of them is up.

    A pattern means the devices that at least half of the nodes have, and that are up on one of
    them: one that a single node has lost is tested, and fails there. Raises CheckError.
    """
    if is_complete(text):
        return ",".join(words_of(text))
    known = [node for node in nodes if node]
    count = Counter(name for node in known for name in node)
    used = {name for node in known for name, is_up in node.items() if is_up}
    common = sorted(
        (name for name in used if 2 * count[name] >= len(known) and _NAME.fullmatch(name)),
        key=natural,
    )
    chosen: list[str] = []
    for word in words_of(text):
        if is_complete(word):
            chosen.append(word)
        else:
            pattern = "*" if word == ALL else word
            chosen += [name for name in common if fnmatchcase(name, pattern)]
    if not chosen:
        have = ", ".join(common[:8]) or "none"
        wording = Wording("no device is {value}: nodes have {words}", value=shown(text), words=have)
        raise CheckError(Problem("test.device", wording))
    return ",".join(dict.fromkeys(chosen))


def natural(name: str) -> list[tuple[int, str]]:
    """A key that sorts mlx5_2 before mlx5_10."""
    parts = _DIGITS.split(name)
    return [(int(part), "") if place % 2 else (0, part) for place, part in enumerate(parts)]
