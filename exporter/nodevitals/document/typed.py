"""Converts plain values to typed ones. In: the values of YAML text, and a type. Out: a value of the
type, and every problem with its path: unknown or missing keys, wrong types, values out of bounds.

The message of a problem names the value and what to write instead. The library's own messages
(Expected `int | null`, got `str`) are never shown.
"""

from __future__ import annotations

import re
import typing
from collections.abc import Iterable, Mapping
from functools import cache
from typing import Annotated, Any, Literal, get_args, get_origin

import msgspec

from nodevitals.document.problems import Problem, join
from nodevitals.quantities import UNIONS, Spelling, shown


def meant(word: object, known: Iterable[str]) -> str:
    """`; did you mean X?` for the known words that look like this one, or ''."""
    near = _near(word, known)
    return f"; did you mean {' or '.join(near)}?" if near else ""


def _near(word: object, known: Iterable[str]) -> list[str]:
    import difflib  # here: only errors need it

    return difflib.get_close_matches(str(word), list(known), n=2, cutoff=0.6)


LIST = 'a list, each item on a line after "- "'
MAPPING = "a mapping, each key on a line as `key: value`"
_NUMBER = re.compile(r"[-+]?[0-9]+(\.[0-9]+)?")


_MISMATCH = re.compile(r"`([a-z| ]+)`(?=,| at|$| >| <| of)")
_SHAPES = {
    "array": "a list",
    "bool": "true or false",
    "float": "a number",
    "int": "a whole number",
    "null": "nothing",
    "object": "a mapping",
    "str": "text",
}


def translated(error: Exception) -> str:
    """A message of the library in words, for files with the format of another program."""
    message, _, place = str(error).partition(" - at `$")
    translation = _MISMATCH.sub(lambda match: _shape_words(match[1]), message)
    where = place.rstrip("`").lstrip(".")
    return f"{where}: {translation}" if where else translation


def _shape_words(names: str) -> str:
    return " or ".join(_SHAPES.get(name, name) for name in names.split(" | "))


def mismatch(value: Any, hint: Any) -> str:
    """Why a value does not fit a type, and what to write."""
    words = allowed_words(hint)
    if words and value is not None and not isinstance(value, (list, Mapping)):
        spelled = str(value).lower() if isinstance(value, bool) else shown(value)
        return f"{spelled} is none of {', '.join(words)}{meant(value, words)}"
    wanted = wording(hint)
    if isinstance(value, (bool, int, float)) and str in _choices(hint):
        spelled = str(value).lower() if isinstance(value, bool) else str(value)
        return f'{kind(value)}: write {wanted}, here in quotes: "{shown_plain(spelled)}"'
    if isinstance(value, str) and _NUMBER.fullmatch(value) and wanted != "text":
        return f"{kind(value)}: write {wanted}, without quotes"
    return f"{kind(value)}: write {wanted}"


def shown_plain(text: str) -> str:
    """The beginning of a long number."""
    return text if len(text) <= 30 else f"{text[:30]}…"


def kind(value: Any) -> str:
    """What a value is: `12 is a number`, `a list`."""
    if value is None:
        return "has no value"
    if isinstance(value, bool):
        return f"{str(value).lower()} is a boolean"
    if isinstance(value, (int, float)):
        return f"{shown_plain(str(value))} is a number"
    if isinstance(value, str):
        return f"{shown(value)} is text"
    return "is a list" if isinstance(value, list) else "is a mapping"


def allowed_words(hint: Any) -> list[str]:
    """The spellings of a Literal, a bool, or a union of them; [] of any other type."""
    if hint is bool:
        return ["true", "false"]
    if get_origin(hint) is Literal:
        return [str(word) for word in get_args(hint)]
    if get_origin(hint) in UNIONS:
        spellings = [allowed_words(choice) for choice in get_args(hint) if choice is not type(None)]
        return [word for words in spellings for word in words] if all(spellings) else []
    return []


def wording(hint: Any) -> str:
    """The values of a type in words. Raises TypeError for a type that is not supported."""
    origin, arguments = get_origin(hint), get_args(hint)
    if origin in UNIONS:
        return " or ".join(wording(choice) for choice in arguments)
    if origin is Annotated:
        plain, *marks = arguments
        unit = "characters" if plain is str else "items"
        bounds = [_bounds(mark, unit) for mark in marks if isinstance(mark, msgspec.Meta)]
        return " ".join([wording(plain), *bounds]).rstrip()
    if origin is Literal or hint is bool:
        return f"one of {', '.join(allowed_words(hint))}"
    if origin is tuple:
        return LIST
    if origin is dict or (isinstance(hint, type) and issubclass(hint, msgspec.Struct)):
        return MAPPING
    plain_words = {int: "a whole number", float: "a number", str: "text", type(None): "null"}
    if hint not in plain_words:
        raise TypeError(f"no words for the type {hint}")
    return plain_words[hint]


def _choices(hint: Any) -> tuple[Any, ...]:
    """The plain types that a type allows."""
    origin, arguments = get_origin(hint), get_args(hint)
    if origin in UNIONS:
        return tuple(plain for choice in arguments for plain in _choices(choice))
    return _choices(arguments[0]) if origin is Annotated else (hint,)


def _bounds(meta: msgspec.Meta, unit: str) -> str:
    parts = []
    if meta.max_length is not None:
        parts.append(f"of {meta.min_length or 0} to {meta.max_length} {unit}")
    elif meta.min_length is not None:
        parts.append(f"of at least {meta.min_length} {unit}")
    if meta.gt is not None:
        parts.append(f"above {meta.gt:g}" + (f", up to {meta.le:,}" if meta.le is not None else ""))
    elif meta.ge is not None and meta.le is not None:
        parts.append(f"from {meta.ge} to {meta.le}")
    elif meta.ge is not None:
        parts.append(f"from {meta.ge}" + (f" to below {meta.lt}" if meta.lt is not None else ""))
    if meta.multiple_of is not None:
        parts.append(f"in multiples of {meta.multiple_of}")
    return " ".join(parts)


def convert(value: Any, hint: Any, path: str, problems: list[Problem]) -> Any:
    """`value` as the type `hint`; None where it does not fit, with an entry in `problems`."""
    before = len(problems)
    converted = _convert(value, hint, path, problems)
    return converted if len(problems) == before else None


def convert_parts(value: Any, hint: Any, path: str, problems: list[Problem]) -> Any:
    """`value` as the type `hint`, with an entry in `problems` for each part that does not fit. In a
    structure such a part is unset, which `add_problems` expects, in a list it is None.
    """
    return _convert(value, hint, path, problems)


def add_problems(found: Iterable[Problem], problems: list[Problem]) -> None:
    """Add the problems of values that do not fit each other, where some may be unset: of a check
    that needs one of these, nothing is known.
    """
    has_parts_unset = bool(problems)
    try:
        for problem in found:
            problems.append(problem)  # what was found before an error counts
    except (AttributeError, TypeError):
        if not has_parts_unset:
            raise


def _convert(value: Any, hint: Any, path: str, problems: list[Problem]) -> Any:
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
    except (msgspec.ValidationError, ValueError):  # its text is for programmers
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
            return _convert(value, choice, path, problems)
    return _convert_plain(value, hint, path, problems)


def _convert_list(value: Any, item: Any, path: str, problems: list[Problem]) -> Any:
    if not isinstance(value, list):
        problems.append(Problem(path, f"{kind(value)}: write {LIST}"))
        return None
    return tuple(
        _convert(part, item, f"{path}[{index}]", problems) for index, part in enumerate(value)
    )


def _convert_mapping(value: Any, item: Any, path: str, problems: list[Problem]) -> Any:
    if not isinstance(value, Mapping):
        problems.append(Problem(path, f"{kind(value)}: write {MAPPING}"))
        return None
    converted = {}
    for key, part in value.items():
        if not isinstance(key, str):
            problems.append(Problem(join(path, key), "the key is not a string: write it in quotes"))
            continue
        converted[key] = _convert(part, item, join(path, key), problems)
    return converted


def _convert_struct(
    value: Any, struct: type[msgspec.Struct], path: str, problems: list[Problem]
) -> Any:
    if not isinstance(value, Mapping):
        problems.append(Problem(path, f"{kind(value)}: write {MAPPING}"))
        return None
    before = len(problems)
    hints, fields = _fields(struct)
    unset = {name for name, field in fields.items() if field.required and name not in value}
    problems.extend(Problem(join(path, name), f"missing: write `{name}: …` here") for name in unset)
    for key in value:
        if key not in fields:
            text = f"unknown key; use one of {', '.join(sorted(fields))}{meant(key, fields)}"
            problems.append(Problem(join(path, key), text))
            unset.update(_near(key, fields))
    converted = {}
    for name in filter(value.__contains__, fields):
        known = len(problems)
        converted[name] = _convert(value[name], hints[name], join(path, name), problems)
        if converted[name] is None and len(problems) > known:
            unset.add(name)
    if len(problems) == before:
        return struct(**converted)
    result = struct(**{**dict.fromkeys(unset), **converted})
    for name in unset:
        getattr(struct, name).__delete__(result)
    return result


@cache  # evaluating the hints for each of thousands of list items takes most of the time
def _fields(
    struct: type[msgspec.Struct],
) -> tuple[dict[str, Any], dict[str, msgspec.structs.FieldInfo]]:
    hints = typing.get_type_hints(struct, include_extras=True)
    return hints, {field.name: field for field in msgspec.structs.fields(struct)}
