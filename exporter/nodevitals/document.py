"""Strict YAML. In: text. Out: typed values, or every problem with its path.

An unknown key, a wrong type, a duplicate key, or aliases that expand to too many values are errors.
All of them are reported at once.
"""

from __future__ import annotations

import types
import typing
from collections.abc import Mapping, Sequence
from typing import Any, Literal, Union, get_args, get_origin

import msgspec
import yaml

from nodevitals.quantities import Spelling

MAX_BYTES = 4 * 1024 * 1024
MAX_DEPTH = 32
MAX_NODES = 200_000

# libyaml's parser where PyYAML was built with it: ten times faster on long peer lists.
_Loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class Problem(msgspec.Struct, frozen=True, order=True):
    """An error in a file: its path (`probes.mounts.targets[0].path`) and a message."""

    path: str
    message: str

    def __str__(self) -> str:
        return f"{self.path}: {self.message}" if self.path else self.message


class DocumentError(Exception):
    """The file is not valid; `problems` lists every error."""

    def __init__(self, problems: Sequence[Problem]) -> None:
        super().__init__("; ".join(map(str, problems)))
        self.problems = tuple(problems)


def parse_yaml(text: bytes) -> Any:
    """The single document in `text` as plain values. Raises DocumentError."""
    if len(text) > MAX_BYTES:
        raise DocumentError([Problem("", f"larger than {MAX_BYTES // 1024} KiB")])
    try:
        _check_depth(text)
        loader = _Loader(text)
        try:
            node = loader.get_single_node()
            if node is None:
                return None
            problems: list[Problem] = []
            _expanded_size(node, {}, set())
            _find_duplicates(node, "", problems, set())
            if problems:
                raise DocumentError(problems)
            return loader.construct_document(node)
        finally:
            loader.dispose()
    except yaml.YAMLError as error:
        raise DocumentError([Problem("", _one_line(error))]) from None
    except (UnicodeDecodeError, ValueError) as error:
        raise DocumentError([Problem("", f"not readable as YAML: {error}")]) from None


def _one_line(error: yaml.YAMLError) -> str:
    mark = getattr(error, "problem_mark", None)
    what = getattr(error, "problem", None) or getattr(error, "reason", None) or str(error)
    where = f"line {mark.line + 1}, column {mark.column + 1}: " if mark else ""
    return f"{where}not valid YAML: {' '.join(str(what).split())}"


def _check_depth(text: bytes) -> None:
    """Limit the depth by the stream of events, because later steps recurse."""
    depth = 0
    for event in yaml.parse(text, Loader=_Loader):
        if isinstance(event, yaml.CollectionStartEvent):
            depth += 1
            if depth > MAX_DEPTH:
                raise DocumentError([Problem("", f"nested deeper than {MAX_DEPTH} levels")])
        elif isinstance(event, yaml.CollectionEndEvent):
            depth -= 1


def _children(node: yaml.Node) -> list[yaml.Node]:
    if isinstance(node, yaml.MappingNode):
        return [part for pair in node.value for part in pair]
    return list(node.value) if isinstance(node, yaml.SequenceNode) else []


def _expanded_size(node: yaml.Node, known: dict[int, int], open_nodes: set[int]) -> int:
    """Number of nodes when aliases are expanded; raises DocumentError where they are too many."""
    if id(node) in open_nodes:
        raise DocumentError([Problem("", "an alias contains itself")])
    if id(node) not in known:
        open_nodes.add(id(node))
        size = 1 + sum(_expanded_size(child, known, open_nodes) for child in _children(node))
        open_nodes.discard(id(node))
        if size > MAX_NODES:
            raise DocumentError([Problem("", f"aliases expand to over {MAX_NODES} values")])
        known[id(node)] = size
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
            if name in seen and name != "<<":
                problems.append(Problem(_join(path, name), "duplicate key"))
            seen.add(name)
            _find_duplicates(value, _join(path, name), problems, visited)
    elif isinstance(node, yaml.SequenceNode):
        for index, item in enumerate(node.value):
            _find_duplicates(item, f"{path}[{index}]", problems, visited)


def _join(path: str, key: object) -> str:
    return f"{path}.{key}" if path else str(key)


def convert(value: Any, hint: Any, path: str, problems: list[Problem]) -> Any:
    """`value` as the type `hint`. What does not fit is added to `problems` and becomes None."""
    origin, arguments = get_origin(hint), get_args(hint)
    spelling = _spelling(hint)
    if spelling is not None:
        return _read(spelling.parse, value, path, problems)
    if origin in (Union, types.UnionType):
        return _convert_union(value, hint, arguments, path, problems)
    if isinstance(hint, type) and issubclass(hint, msgspec.Struct):
        return _convert_struct(value, hint, path, problems)
    if origin is tuple and len(arguments) == 2 and arguments[1] is Ellipsis:
        return _convert_list(value, arguments[0], path, problems)
    if origin is dict:
        return _convert_mapping(value, arguments[1], path, problems)
    return _convert_plain(value, hint, path, problems)


def _spelling(hint: Any) -> Spelling | None:
    return next((part for part in get_args(hint) if isinstance(part, Spelling)), None)


def _convert_plain(value: Any, hint: Any, path: str, problems: list[Problem]) -> Any:
    """Convert a value without parts; the message lists the words that are allowed, if any."""
    before = len(problems)
    found = _read(lambda raw: msgspec.convert(raw, hint, strict=True), value, path, problems)
    if len(problems) > before and (words := _allowed_words(hint)):
        problems[-1] = Problem(path, f"{value!r} is none of {', '.join(words)}")
    return found


def _allowed_words(hint: Any) -> list[str]:
    """The spellings of a Literal, a bool, or a union of them."""
    if hint is bool:
        return ["true", "false"]
    if get_origin(hint) is Literal:
        return [str(word) for word in get_args(hint)]
    if get_origin(hint) in (Union, types.UnionType):
        return [word for choice in get_args(hint) for word in _allowed_words(choice)]
    return []


def _read(
    parse: typing.Callable[[Any], Any], value: Any, path: str, problems: list[Problem]
) -> Any:
    try:
        return parse(value)
    except (msgspec.ValidationError, ValueError) as error:
        message = str(error).replace(" - at `$`", "")
        if message == "Expected `str`, got `int`":
            message += ": write it in quotes"
        problems.append(Problem(path, message))
        return None


def _convert_union(
    value: Any, hint: Any, arguments: tuple[Any, ...], path: str, problems: list[Problem]
) -> Any:
    if value is None and type(None) in arguments:
        return None
    for choice in arguments:
        shape = get_origin(choice) or choice
        has_parts = shape in (tuple, dict) or (
            isinstance(shape, type) and issubclass(shape, msgspec.Struct)
        )
        fits = isinstance(value, list) if shape is tuple else isinstance(value, Mapping)
        if (has_parts and fits) or _spelling(choice) is not None:
            return convert(value, choice, path, problems)
    return _convert_plain(value, hint, path, problems)


def _convert_list(value: Any, item: Any, path: str, problems: list[Problem]) -> Any:
    if not isinstance(value, list):
        problems.append(Problem(path, f"Expected a list, got {_type_name(value)}"))
        return None
    return tuple(
        convert(part, item, f"{path}[{index}]", problems) for index, part in enumerate(value)
    )


def _convert_mapping(value: Any, item: Any, path: str, problems: list[Problem]) -> Any:
    if not isinstance(value, Mapping):
        problems.append(Problem(path, f"Expected a mapping, got {_type_name(value)}"))
        return None
    found = {}
    for key, part in value.items():
        if not isinstance(key, str):
            problems.append(
                Problem(_join(path, key), "the key is not a string: write it in quotes")
            )
            continue
        found[key] = convert(part, item, _join(path, key), problems)
    return found


def _convert_struct(
    value: Any, struct: type[msgspec.Struct], path: str, problems: list[Problem]
) -> Any:
    if not isinstance(value, Mapping):
        problems.append(Problem(path, f"Expected a mapping, got {_type_name(value)}"))
        return None
    before = len(problems)
    hints = typing.get_type_hints(struct, include_extras=True)
    fields = {field.name: field for field in msgspec.structs.fields(struct)}
    for key in value:
        if key not in fields:
            problems.append(
                Problem(_join(path, key), f"unknown key; known: {', '.join(sorted(fields))}")
            )
    found = {
        name: convert(value[name], hints[name], _join(path, name), problems)
        for name in fields
        if name in value
    }
    problems.extend(
        Problem(_join(path, name), "missing")
        for name, field in fields.items()
        if field.required and name not in value
    )
    return struct(**found) if len(problems) == before else None


def _type_name(value: Any) -> str:
    return "nothing" if value is None else f"`{type(value).__name__}`"
