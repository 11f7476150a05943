"""YAML text. In: bytes. Out: its root node, or its plain values, or every problem with its place.

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

Place = tuple[int, int]
"""Line and column, from 1; 0 where unknown."""

_DUPLICATE = "duplicate key"
_TABS = "indent with spaces, not with tabs"
# A part of libyaml's or PyYAML's message, and its remedy; the last one is for any other message.
_REMEDIES = {
    "cannot start any token": "put a text that begins with @, ` or % in quotes; indent with spaces",
    "mapping values are not allowed": 'put a text that contains ": " in quotes, or check the '
    "indentation",
    "could not find expected ':'": "write `key: value`, with a space after the colon",
    "undefined alias": "put a text that begins with * in quotes",
    "unexpected end of stream": "close the quotes",
    "expected ',' or": "close the bracket, and separate items by commas",
    "expected the node content": "close the bracket, or write the value",
    "expected key": "indent all keys of a mapping alike",
    "expected <block end>": "indent all keys of a mapping alike",
    "block end": "indent all keys of a mapping alike",
    "'-' indicator": 'begin each item of the list with "- ", indented alike',
    "but found another document": "remove the line `---`: the file has one document",
    "control characters": "save the file as plain UTF-8 text",
    "special characters": "save the file as plain UTF-8 text",
    "UTF-8": "save the file as plain UTF-8 text",
    "": "check quotes, brackets and indentation here",
}

# libyaml's parser where PyYAML was built with it: ten times faster on long peer lists.
_Loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def parse_yaml(text: bytes) -> Any:
    """The single document in `text` as plain values. Raises DocumentError."""
    return values_of(compose(text))


def compose(text: bytes, duplicates: list[Problem] | None = None) -> yaml.Node | None:
    """The root node of the single document in `text`; None where it is empty. Raises
    DocumentError, unless all that is wrong are duplicate keys and there is a list for them.
    """
    if len(text) > MAX_BYTES:
        raise DocumentError([Problem("", f"larger than {MAX_BYTES // 1024} KiB: split it")])
    try:
        _check_size(text)
        loader = _Loader(text)
        try:
            node: yaml.Node | None = loader.get_single_node()
        finally:
            loader.dispose()
    except (yaml.YAMLError, ValueError) as error:
        raise _invalid(error, text) from None
    if node is not None:
        _measure(node, {}, set())
        problems: list[Problem] = []
        _find_duplicates(node, "", problems, set())
        if duplicates is not None and all(_DUPLICATE in found.message for found in problems):
            duplicates.extend(problems)
        elif problems:
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


def _invalid(error: Exception, text: bytes = b"") -> DocumentError:
    if not isinstance(error, yaml.YAMLError):
        return DocumentError([Problem("", f"not readable as YAML: {error}: {_REMEDIES['']}")])
    mark = getattr(error, "problem_mark", None)
    place = (mark.line + 1, mark.column + 1) if mark else _place_in(text, error)
    what = getattr(error, "problem", None) or getattr(error, "reason", None) or str(error)
    what = " ".join(str(what).split())
    remedy = next(remedy for part, remedy in _REMEDIES.items() if part in what)
    if mark and "\t" in _indentation(text, mark.line):
        remedy = _TABS
    return DocumentError([Problem("", f"not valid YAML: {what}: {remedy}", *place)])


def _place_in(text: bytes, error: yaml.YAMLError) -> Place:
    """The place of a byte or a character that YAML does not allow."""
    position = getattr(error, "position", None)
    if not isinstance(position, int):
        return 0, 0
    before = text[:position]
    return before.count(b"\n") + 1, position - (before.rfind(b"\n") + 1) + 1


def _indentation(text: bytes, line: int) -> str:
    lines = text.decode(errors="replace").splitlines()
    content = lines[line] if line < len(lines) else ""
    return content[: len(content) - len(content.lstrip())]


def place_of(part: yaml.Node | yaml.Event) -> Place:
    """The line and the column at which a node or an event starts, from 1."""
    mark = part.start_mark
    return (0, 0) if mark is None else (int(mark.line) + 1, int(mark.column) + 1)


def _check_size(content: bytes) -> None:
    """Limit the depth and the number of values in the stream of events: later steps recurse, and
    need a hundred times the memory of the text.
    """
    depth = count = 0
    for event in yaml.parse(content, Loader=_Loader):
        if isinstance(event, yaml.CollectionEndEvent):
            depth -= 1
            continue
        count += 1
        depth += isinstance(event, yaml.CollectionStartEvent)
        if depth > MAX_DEPTH:
            raise _too_deep(event)
        if count > MAX_NODES:
            raise DocumentError(
                [Problem("", f"over {MAX_NODES} values: remove some", *place_of(event))]
            )


def _too_deep(place: yaml.Node | yaml.Event) -> DocumentError:
    return DocumentError(
        [
            Problem(
                "", f"nested deeper than {MAX_DEPTH} levels: check the brackets", *place_of(place)
            )
        ]
    )


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
        raise DocumentError([Problem("", "an alias contains itself: remove it", *place_of(node))])
    if id(node) not in known:
        open_nodes.add(id(node))
        parts = [_measure(child, known, open_nodes) for child in _children(node)]
        open_nodes.discard(id(node))
        size = 1 + sum(more for more, _ in parts)
        depth = max((below for _, below in parts), default=0)
        depth += isinstance(node, yaml.CollectionNode)
        if size > MAX_NODES:
            text = f"aliases expand to over {MAX_NODES} values: remove some"
            raise DocumentError([Problem("", text, *place_of(node))])
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
                text = (
                    f"a key that is no plain text of at most {MAX_KEY_CHARACTERS} characters: "
                    "write it in quotes"
                )
                problems.append(Problem(path, text, *place_of(key)))
                continue
            if name in seen and name != "<<":
                problems.append(
                    Problem(join(path, name), f"{_DUPLICATE}: remove one of them", *place_of(key))
                )
            seen.add(name)
            _find_duplicates(value, join(path, name), problems, visited)
    elif isinstance(node, yaml.SequenceNode):
        for index, item in enumerate(node.value):
            _find_duplicates(item, f"{path}[{index}]", problems, visited)
