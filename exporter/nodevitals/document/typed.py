"""Plain values to typed ones. In: what YAML text contains, and a type. Out: a value of the type,
and every problem with its path: an unknown key, a wrong type, a missing key, a value out of bounds.
"""

from __future__ import annotations

import typing
from collections.abc import Mapping
from functools import cache
from typing import Any, get_args, get_origin

import msgspec

from nodevitals.document.problems import Problem, join
from nodevitals.document.suggest import meant
from nodevitals.document.wording import LIST, MAPPING, kind, mismatch
from nodevitals.quantities import UNIONS, Spelling


def convert(value: Any, hint: Any, path: str, problems: list[Problem]) -> Any:
    """`value` as the type `hint`. What does not fit is added to `problems` and becomes None."""
    origin, arguments = get_origin(hint), get_args(hint)
    spelling = _spelling(hint)
    if spelling is not None:
        return _read(spelling.parse, value, path, problems)
    if origin in UNIONS:
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
    try:
        return msgspec.convert(value, hint, strict=True)
    except (msgspec.ValidationError, ValueError):  # whose text is for programmers
        problems.append(Problem(path, mismatch(value, hint)))
        return None


def _read(
    parse: typing.Callable[[Any], Any], value: Any, path: str, problems: list[Problem]
) -> Any:
    try:
        return parse(value)
    except ValueError as error:
        problems.append(Problem(path, str(error)))
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
        problems.append(Problem(path, f"{kind(value)}: write {LIST}"))
        return None
    return tuple(
        convert(part, item, f"{path}[{index}]", problems) for index, part in enumerate(value)
    )


def _convert_mapping(value: Any, item: Any, path: str, problems: list[Problem]) -> Any:
    if not isinstance(value, Mapping):
        problems.append(Problem(path, f"{kind(value)}: write {MAPPING}"))
        return None
    found = {}
    for key, part in value.items():
        if not isinstance(key, str):
            problems.append(Problem(join(path, key), "the key is not a string: write it in quotes"))
            continue
        found[key] = convert(part, item, join(path, key), problems)
    return found


def _convert_struct(
    value: Any, struct: type[msgspec.Struct], path: str, problems: list[Problem]
) -> Any:
    if not isinstance(value, Mapping):
        problems.append(Problem(path, f"{kind(value)}: write {MAPPING}"))
        return None
    before = len(problems)
    hints, fields = _fields(struct)
    for key in value:
        if key not in fields:
            text = f"unknown key; use one of {', '.join(sorted(fields))}{meant(key, fields)}"
            problems.append(Problem(join(path, key), text))
    found = {
        name: convert(value[name], hints[name], join(path, name), problems)
        for name in fields
        if name in value
    }
    problems.extend(
        Problem(join(path, name), f"missing: write `{name}: …` here")
        for name, field in fields.items()
        if field.required and name not in value
    )
    return struct(**found) if len(problems) == before else None


@cache  # evaluating the hints for each of thousands of list items takes most of the time
def _fields(
    struct: type[msgspec.Struct],
) -> tuple[dict[str, Any], dict[str, msgspec.structs.FieldInfo]]:
    hints = typing.get_type_hints(struct, include_extras=True)
    return hints, {field.name: field for field in msgspec.structs.fields(struct)}
