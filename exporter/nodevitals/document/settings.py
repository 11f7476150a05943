"""A file of settings. In: YAML text. Out: plain values, and the values that are refused.

YAML 1.1 reads 1:30 as 90, 0777 as 511, 1_000 as 1000, `no` as false and 2024-01-01 as a date, and
other versions do not: such values are errors, as are texts and lists without a bound.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

import yaml

from nodevitals.document.problems import DocumentError, Problem, join
from nodevitals.document.text import CONTROL, Place, compose, place_of, values_of
from nodevitals.quantities import shown

MAX_ITEMS = 10_000
MAX_TEXT_CHARACTERS = 4096

_TAG = "tag:yaml.org,2002:"
_DECIMAL = re.compile(r"[-+]?[0-9]{0,18}(\.[0-9]{0,18})?([eE][-+]?[0-9]{1,2})?")
_OCTAL = re.compile(r"[-+]?0[0-9]+")
_NUMBER = "not a plain decimal number: write its digits, or put text in quotes"
_TAGGED = "not valid YAML for a setting: the tag"
_READ_AS = {
    "int": _NUMBER,
    "float": _NUMBER,
    "bool": "a boolean in YAML: write true or false, or put text in quotes",
    "timestamp": "a date in YAML: put it in quotes",
}


class SettingsDocument:
    """The text of one file. Raises DocumentError where it is not YAML."""

    def __init__(self, text: bytes) -> None:
        self._places: dict[str, Place] = {}
        self._refused: dict[str, Problem] = {}
        self._visited: set[int] = set()
        duplicates: list[Problem] = []
        root = compose(text, duplicates)
        if root is not None:
            self._places[""] = place_of(root)
            self._check(root, "")
        self._refused |= {problem.path: problem for problem in duplicates}
        self._root = root

    def values(self) -> Any:
        """The plain values, with refused ones as text; {} for an empty file."""
        values = values_of(self._root)
        return {} if values is None else values

    def error(self, problems: Iterable[Problem]) -> DocumentError | None:
        """The refused values and these other problems, each with its place, in the file's order.
        None where there are none.
        """
        others = [problem for problem in problems if problem.path not in self._refused]
        all_problems = [*self._refused.values(), *self.placed(others)]
        all_problems.sort(key=_place)
        return DocumentError(all_problems) if all_problems else None

    def placed(self, problems: Iterable[Problem]) -> list[Problem]:
        """The problems in the file's order, each with the line and the column of its path, or of
        the nearest part of it that the file has.
        """
        placed = [
            problem if problem.line else _at(problem, self._nearest(problem.path))
            for problem in problems
        ]
        return sorted(placed, key=_place)

    def _nearest(self, path: str) -> Place:
        while path and path not in self._places:
            path = path[: max(path.rfind("."), path.rfind("["), 0)]
        return self._places.get(path, (0, 0))

    def _check(self, node: yaml.Node, path: str) -> None:
        """Record the places below a node, and the refused values, which become text."""
        if id(node) in self._visited:
            return
        self._visited.add(id(node))
        wrong = _wrong_scalar(node) if isinstance(node, yaml.ScalarNode) else _wrong_parts(node)
        if wrong:
            place = self._places.get(path, place_of(node))
            self._refused.setdefault(path, Problem(path, wrong, *place))
            _neutralize(node)
        if isinstance(node, yaml.MappingNode):
            for key, value in node.value:
                below = join(path, str(key.value))
                self._places[below] = place_of(key)
                self._check(key, below)
                self._check(value, below)
        elif isinstance(node, yaml.SequenceNode):
            for index, item in enumerate(node.value):
                below = f"{path}[{index}]"
                self._places[below] = place_of(item)
                self._check(item, below)


def _place(problem: Problem) -> Place:
    return problem.line, problem.column


def _at(problem: Problem, place: Place) -> Problem:
    return Problem(problem.path, problem.message, *place)


def _neutralize(node: yaml.Node) -> None:
    """Turn the node into a value that can be constructed: a text, or an empty list or mapping."""
    if isinstance(node, yaml.ScalarNode):
        node.tag = f"{_TAG}str"
    else:
        node.tag = f"{_TAG}map" if isinstance(node, yaml.MappingNode) else f"{_TAG}seq"
        node.value = []


def _wrong_parts(node: yaml.Node) -> str:
    """What is wrong with a list or a mapping, or ''."""
    if len(node.value) > MAX_ITEMS:
        return f"{len(node.value)} items, over {MAX_ITEMS}: remove some"
    if node.tag not in (f"{_TAG}map", f"{_TAG}seq"):
        return f"{_TAGGED} {shown(node.tag)}: remove it"
    return ""


def _wrong_scalar(node: yaml.ScalarNode) -> str:
    """What is wrong with a scalar, or ''."""
    value, kind = str(node.value), node.tag.removeprefix(_TAG)
    if len(value) > MAX_TEXT_CHARACTERS:
        return f"a text of over {MAX_TEXT_CHARACTERS} characters: write a shorter one"
    if CONTROL.search(value):
        return f"{shown(value)} contains a control character: remove it"
    plain = {
        "str": True,
        "null": True,
        "merge": True,
        "int": _DECIMAL.fullmatch(value) and not _OCTAL.fullmatch(value),
        "float": _DECIMAL.fullmatch(value),
        "bool": value.lower() in ("true", "false"),
    }
    if plain.get(kind):
        return ""
    if kind in _READ_AS:
        return f"{shown(value)} is {_READ_AS[kind]}"
    return f"{_TAGGED} {shown(node.tag)}: remove it"
