"""YAML text. In: bytes. Out: its root node, or its plain values, or every problem with its path.

A duplicate key, or aliases that expand to too many values, are errors.
"""

from __future__ import annotations

import re
from typing import Any

import yaml
from yaml.constructor import SafeConstructor

from nodevitals.document.problems import DocumentError, Problem, join

MAX_BYTES = 4 * 1024 * 1024
MAX_DEPTH = 32
MAX_NODES = 200_000
MAX_KEY_CHARACTERS = 256
CONTROL = re.compile("[\x00-\x1f\x7f-\x9f\ud800-\udfff]")

# libyaml's parser where PyYAML was built with it: ten times faster on long peer lists.
_Loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def parse_yaml(text: bytes) -> Any:
    """The single document in `text` as plain values. Raises DocumentError."""
    return values_of(compose(text))


def compose(text: bytes) -> yaml.Node | None:
    """The root node of the single document in `text`; None where it is empty. Raises
    DocumentError.
    """
    if len(text) > MAX_BYTES:
        raise DocumentError([Problem("", f"larger than {MAX_BYTES // 1024} KiB")])
    try:
        _check_size(text)
        loader = _Loader(text)
        try:
            node: yaml.Node | None = loader.get_single_node()
        finally:
            loader.dispose()
    except (yaml.YAMLError, ValueError) as error:
        raise _invalid(error) from None
    if node is not None:
        _measure(node, {}, set())
        problems: list[Problem] = []
        _find_duplicates(node, "", problems, set())
        if problems:
            raise DocumentError(problems)
    return node


def values_of(node: yaml.Node | None) -> Any:
    """The plain values of a root node. Raises DocumentError."""
    if node is None:
        return None
    try:
        return SafeConstructor().construct_document(node)
    except (yaml.YAMLError, ValueError) as error:
        raise _invalid(error) from None


def _invalid(error: Exception) -> DocumentError:
    if not isinstance(error, yaml.YAMLError):
        return DocumentError([Problem("", f"not readable as YAML: {error}")])
    mark = getattr(error, "problem_mark", None)
    what = getattr(error, "problem", None) or getattr(error, "reason", None) or str(error)
    where = f"line {mark.line + 1}, column {mark.column + 1}: " if mark else ""
    return DocumentError([Problem("", f"{where}not valid YAML: {' '.join(str(what).split())}")])


def line_of(place: yaml.Node | yaml.Event) -> int:
    """The line on which a node or an event starts, from 1."""
    mark = place.start_mark
    return 0 if mark is None else int(mark.line) + 1


def _check_size(text: bytes) -> None:
    """Limit depth and number of values by the stream of events: later steps recurse, and take a
    hundred times the memory of the text.
    """
    depth = count = 0
    for event in yaml.parse(text, Loader=_Loader):
        if isinstance(event, yaml.CollectionEndEvent):
            depth -= 1
            continue
        count += 1
        depth += isinstance(event, yaml.CollectionStartEvent)
        if depth > MAX_DEPTH:
            raise _too_deep(event)
        if count > MAX_NODES:
            raise DocumentError([Problem("", f"over {MAX_NODES} values", line_of(event))])


def _too_deep(place: yaml.Node | yaml.Event) -> DocumentError:
    return DocumentError([Problem("", f"nested deeper than {MAX_DEPTH} levels", line_of(place))])


def _children(node: yaml.Node) -> list[yaml.Node]:
    if isinstance(node, yaml.MappingNode):
        return [part for pair in node.value for part in pair]
    return list(node.value) if isinstance(node, yaml.SequenceNode) else []


def _measure(
    node: yaml.Node, known: dict[int, tuple[int, int]], open_nodes: set[int]
) -> tuple[int, int]:
    """Number of nodes and of levels when aliases are expanded; raises DocumentError where they are
    too many.
    """
    if id(node) in open_nodes:
        raise DocumentError([Problem("", "an alias contains itself", line_of(node))])
    if id(node) not in known:
        open_nodes.add(id(node))
        parts = [_measure(child, known, open_nodes) for child in _children(node)]
        open_nodes.discard(id(node))
        size = 1 + sum(more for more, _ in parts)
        depth = max((below for _, below in parts), default=0)
        depth += isinstance(node, yaml.CollectionNode)
        if size > MAX_NODES:
            text = f"aliases expand to over {MAX_NODES} values"
            raise DocumentError([Problem("", text, line_of(node))])
        if depth > MAX_DEPTH:
            raise _too_deep(node)
        known[id(node)] = size, depth
    return known[id(node)]


def _find_duplicates(
    node: yaml.Node, path: str, problems: list[Problem], visited: set[int]
) -> None:
    if id(node) in visited:
        return
    visited.add(id(node))
    if isinstance(node, yaml.MappingNode):
        seen: set[str] = set()
        for key, value in node.value:
            name = str(key.value)
            plain = isinstance(key, yaml.ScalarNode) and len(name) <= MAX_KEY_CHARACTERS
            if not plain or CONTROL.search(name):
                text = f"a key that is no plain text of at most {MAX_KEY_CHARACTERS} characters"
                problems.append(Problem(path, text, line_of(key)))
                continue
            if name in seen and name != "<<":
                problems.append(Problem(join(path, name), "duplicate key", line_of(key)))
            seen.add(name)
            _find_duplicates(value, join(path, name), problems, visited)
    elif isinstance(node, yaml.SequenceNode):
        for index, item in enumerate(node.value):
            _find_duplicates(item, f"{path}[{index}]", problems, visited)
