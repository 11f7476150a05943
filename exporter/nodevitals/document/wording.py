"""Types and values in words. In: a value and the type that it does not fit. Out: one message that
names what it is and what to write instead.

The library's own messages (Expected `int | null`, got `str`) never reach a person.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Any, Literal, get_args, get_origin

import msgspec

from nodevitals.document.suggest import meant
from nodevitals.quantities import UNIONS, shown

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
    """A message of the library in words: of files whose format belongs to another program."""
    message, _, place = str(error).partition(" - at `$")
    found = _MISMATCH.sub(lambda match: _shape_words(match[1]), message)
    where = place.rstrip("`").lstrip(".")
    return f"{where}: {found}" if where else found


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
        found = [allowed_words(choice) for choice in get_args(hint) if choice is not type(None)]
        return [word for words in found for word in words] if all(found) else []
    return []


def wording(hint: Any) -> str:
    """What a type takes. Raises TypeError for a type that no setting should have."""
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
    """The plain types that a type takes."""
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
