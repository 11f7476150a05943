"""Every regular expression of the package, and texts that make a slow one slow.

In: the modules of `nodevitals` and of the hub. Out: `UsedPattern`, and for each the texts to try.
"""

from __future__ import annotations

import ast
import importlib
import itertools
import pkgutil
import re
import signal
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any, NamedTuple, TypeGuard

import nodevitals
import nodevitals_hub
from testbed.node import ROOT

PACKAGES = (ROOT / "exporter/nodevitals", ROOT / "hub/nodevitals_hub")
METHODS = ("match", "fullmatch", "search", "findall", "finditer", "sub", "subn", "split")
MAX_PAIRED = 6
_TAILS = ("", "\0")
_CATEGORIES = {
    "CATEGORY_DIGIT": "07",
    "CATEGORY_NOT_DIGIT": "x ",
    "CATEGORY_SPACE": " \t\n",
    "CATEGORY_NOT_SPACE": "x0:",
    "CATEGORY_WORD": "a_0",
    "CATEGORY_NOT_WORD": " -:",
}
_ANY = "x \t0"
_parser = importlib.import_module("re._parser")


class UsedPattern(NamedTuple):
    """A pattern, its place, and the methods with which the package uses it."""

    place: str
    pattern: re.Pattern[Any]
    methods: tuple[str, ...]


def modules() -> Iterator[str]:
    """The names of all modules of both packages."""
    for package in (nodevitals, nodevitals_hub):
        for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            if not module.name.endswith("__main__"):
                yield module.name


def global_patterns() -> Iterator[tuple[str, str, bool, re.Pattern[Any]]]:
    """Module, name, whether the pattern is within a container, and each pattern, once."""
    seen: set[int] = set()
    for module in modules():
        for name, value in vars(importlib.import_module(module)).items():
            for pattern in _patterns_in(value, 3):
                if id(pattern) not in seen:
                    seen.add(id(pattern))
                    yield module, name, pattern is not value, pattern


def _patterns_in(value: object, depth: int) -> Iterator[re.Pattern[Any]]:
    if isinstance(value, re.Pattern):
        yield value
    elif isinstance(value, tuple | list | dict | frozenset | set) and depth:
        for part in value.values() if isinstance(value, dict) else value:
            yield from _patterns_in(part, depth - 1)


class Source:
    """The calls of `re` and the uses of names in the package's source."""

    def __init__(self) -> None:
        self.methods: dict[str, set[str]] = {}
        """The methods that are used of each name."""
        self.inline: list[tuple[str, str, str | bytes]] = []
        """Place, function and pattern of each call of `re` with a constant."""
        self.flagged: list[str] = []
        """The files of those with flags."""
        self.dynamic: list[str] = []
        """The places of calls of `re` within functions with anything else."""
        for package in PACKAGES:
            for file in sorted(package.rglob("*.py")):
                self._visit(str(file.relative_to(package)), ast.parse(file.read_text()))

    def _visit(self, place: str, tree: ast.Module) -> None:
        top = {id(node) for statement in tree.body for node in _outside_functions(statement)}
        for node in ast.walk(tree):
            if isinstance(node, ast.Attribute) and node.attr in METHODS:
                name = node.value.id if isinstance(node.value, ast.Name) else ""
                self.methods.setdefault(name, set()).add(node.attr)
            if not _is_call_of_re(node) or id(node) in top:
                continue
            pattern = node.args[0]
            if isinstance(pattern, ast.Constant) and isinstance(pattern.value, str | bytes):
                method = ast.unparse(node.func).removeprefix("re.")
                self.inline.append((f"{place}:{node.lineno}", method, pattern.value))
                self.flagged += [place] if _has_flags(node) else []
            else:
                self.dynamic.append(f"{place}: {ast.unparse(node)}")


def _outside_functions(node: ast.AST) -> Iterator[ast.AST]:
    if not isinstance(node, ast.FunctionDef | ast.Lambda):
        yield node
        for child in ast.iter_child_nodes(node):
            yield from _outside_functions(child)


def _has_flags(node: ast.Call) -> bool:
    plain = {"sub": 3, "subn": 3}.get(getattr(node.func, "attr", ""), 2)
    return len(node.args) > plain or any(word.arg == "flags" for word in node.keywords)


def _is_call_of_re(node: ast.AST) -> TypeGuard[ast.Call]:
    return (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and isinstance(node.func.value, ast.Name)
        and node.func.value.id == "re"
        and node.func.attr in (*METHODS, "compile")
    )


def hostile_texts(pattern: re.Pattern[Any], size: int) -> Iterator[str | bytes]:
    """Texts of about `size` characters: each character of the pattern repeated, each repetition of
    the pattern drawn out behind what comes before it, with an end that does not fit.
    """
    source = pattern.pattern
    tree = _parser.parse(source, pattern.flags)
    alphabet = list(_alphabet(tree))
    texts = dict.fromkeys(char * size for char in alphabet)
    special = [char for char in alphabet if not char.isalnum()][:MAX_PAIRED] + alphabet[:2]
    for pair in itertools.permutations(special, 2):
        texts["".join(pair) * (size // 2) + "\0"] = None
    for prefix, unit in _pumps(tree, ""):
        for tail in _TAILS:
            texts[prefix + unit * (size // len(unit)) + tail] = None
        piece = prefix + unit
        texts[piece * (size // len(piece)) + "\0"] = None
    whole = _sample(tree)
    if whole:
        texts[whole * (size // len(whole)) + "\0"] = None
    for text in texts:
        yield text.encode("latin-1", "replace") if isinstance(source, bytes) else text


def _alphabet(tree: Any) -> dict[str, None]:
    found: dict[str, None] = {}
    for operation, value in tree:
        found.update(dict.fromkeys(_characters(operation, value)))
        for part in _parts(operation, value):
            found.update(_alphabet(part))
    return found


def _characters(operation: Any, value: Any) -> str:
    """What one node of the tree stands for: some of its characters."""
    name = str(operation)
    if name == "LITERAL":
        return chr(value)
    if name == "NOT_LITERAL":
        return "".join(char for char in _ANY if ord(char) != value)
    if name == "ANY":
        return _ANY
    if name == "CATEGORY":
        return _CATEGORIES[str(value)]
    if name == "RANGE":
        return chr(value[0])
    if name != "IN":
        return ""
    found = "".join(_characters(*part) for part in value if str(part[0]) != "NEGATE")
    negated = str(value[0][0]) == "NEGATE"
    return "".join(char for char in _ANY + "|" if char not in found) if negated else found


def _parts(operation: Any, value: Any) -> list[Any]:
    """The sequences below one node."""
    name = str(operation)
    if name in ("MAX_REPEAT", "MIN_REPEAT", "POSSESSIVE_REPEAT"):
        return [value[2]]
    if name == "SUBPATTERN":
        return [value[3]]
    if name == "BRANCH":
        return list(value[1])
    return [value[1]] if name in ("ASSERT", "ASSERT_NOT") else []


def _sample(tree: Any) -> str:
    """A short text that fits, but for back references."""
    text = ""
    for operation, value in tree:
        name, parts = str(operation), _parts(operation, value)
        if name.endswith("REPEAT"):
            text += _sample(parts[0]) * min(value[0], 16)
        elif name in ("SUBPATTERN", "BRANCH"):
            text += _sample(parts[0])
        elif not parts:
            text += _characters(operation, value)[:1]
    return text


def _pumps(tree: Any, prefix: str) -> Iterator[tuple[str, str]]:
    """What comes before each unbounded repetition, and what it repeats."""
    for operation, value in tree:
        name, parts = str(operation), _parts(operation, value)
        if name.endswith("REPEAT") and value[1] > 1000:
            single = len(parts[0]) == 1 and _characters(*parts[0][0])
            for unit in single or [_sample(parts[0])]:
                if unit:
                    yield prefix, unit
        for part in parts if not name.startswith("ASSERT") else ():
            yield from _pumps(part, prefix)
        prefix += _sample([(operation, value)]) or _optional(name, parts)


def _optional(name: str, parts: list[Any]) -> str:
    """What is optional is there once."""
    return _sample(parts[0]) if name.endswith("REPEAT") else ""


class TooSlowError(Exception):
    """The CPU time is used up."""


@contextmanager
def cpu_limit(seconds: float) -> Iterator[None]:
    """Raise TooSlowError in this process when it has used so much CPU time: the time of others on
    a busy machine does not count. Matching checks for signals while it runs.
    """

    def end(_number: int, _frame: FrameType | None) -> None:
        raise TooSlowError

    before = signal.signal(signal.SIGPROF, end)
    signal.setitimer(signal.ITIMER_PROF, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0.0)
        signal.signal(signal.SIGPROF, before)


def apply(pattern: re.Pattern[Any], method: str, text: str | bytes) -> None:
    """Use a pattern as the package does, to the end of the text."""
    if method == "sub":
        pattern.sub(text[:0], text)
    elif method == "finditer":
        deque(pattern.finditer(text), maxlen=0)
    else:
        getattr(pattern, method)(text)
