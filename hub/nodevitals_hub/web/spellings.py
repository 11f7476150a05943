"""Reads and writes the values of form fields: numbers, rates, shares, times, names, pairs.

In: the text of a field. Out: a value that fits its type, and the text for a value. Raises
ValueError, whose text explains what to write.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from decimal import Decimal, InvalidOperation
from typing import Any, NamedTuple, get_args

import msgspec

from nodevitals.document.typed import allowed_words
from nodevitals.errors import Wording
from nodevitals.quantities import parse_bit_rate, parse_duration, shown
from nodevitals_hub.checks.check_requests import Member

_UNITS = (("T", 1e12), ("G", 1e9), ("M", 1e6))


class Spelling(NamedTuple):
    """The functions that read and write a field."""

    read: Callable[[str], Any]
    write: Callable[[Any], str]


def fitting(value: Any, hint: Any) -> Any:
    """The value, if it fits a type; the items of a list are checked one by one."""
    if isinstance(value, list):
        return tuple(fitting(item, get_args(hint)[0]) for item in value)
    try:
        return msgspec.convert(value, hint)
    except msgspec.ValidationError:
        raise ValueError(_not_fitting(shown(value), hint)) from None


def _not_fitting(value: str, hint: Any) -> Wording:
    """Why a value does not fit a type."""
    if words := allowed_words(hint):
        return Wording("{value} is none of {words}", value=value, words=", ".join(words))
    meta = _bounds_of(hint)
    if meta.pattern is not None:
        return Wording("{value}: a name has letters, digits and . _ - only", value=value)
    if meta.max_length is not None:
        return Wording(
            "{value}: write text of 0 to {high} characters", value=value, high=meta.max_length
        )
    if meta.ge is not None and meta.le is not None:
        return Wording(
            "{value}: write a whole number from {low} to {high}",
            value=value,
            low=meta.ge,
            high=meta.le,
        )
    return Wording("{value}: write a number above {low}", value=value, low=f"{meta.gt or 0:g}")


def _bounds_of(hint: Any) -> msgspec.Meta:
    """The bounds of a type, or of the first alternative of an Optional."""
    for part in (hint, *get_args(hint)):
        for mark in getattr(part, "__metadata__", ()):
            if isinstance(mark, msgspec.Meta):
                return mark
    return msgspec.Meta()


def names_of(text: str) -> list[str]:
    """Names, separated by commas or white space."""
    return text.replace(",", " ").replace("\uff0c", " ").split()


def pairs_of(text: str) -> dict[str, str]:
    """NAME=VALUE, one per line."""
    pairs: dict[str, str] = {}
    for line in text.splitlines():
        name, equals, value = (part.strip() for part in line.partition("="))
        if not (equals and name) and line.strip():
            text = Wording("write NAME=VALUE instead of {value}, one per line", value=shown(line))
            raise ValueError(text)
        if name in pairs:
            raise ValueError(Wording("{name} is there twice: remove one", name=shown(name)))
        if name:
            pairs[name] = value
    return pairs


def lines_of(pairs: Mapping[str, str]) -> str:
    """The text for pairs, one per line."""
    return "\n".join(f"{name}={value}" for name, value in pairs.items())


def _number(text: str) -> Any:
    """A number; a text that is not a number is returned unchanged, and fails the type check."""
    return int(text) if text.isascii() and text.isdecimal() and len(text) <= 12 else text


def _decimal(text: str) -> Decimal:
    try:
        value = Decimal(text) if text.isascii() and len(text) <= 400 else Decimal("NaN")
    except InvalidOperation:
        value = Decimal("NaN")
    if not value.is_finite() or abs(value.adjusted()) > 400:
        raise ValueError(Wording("{value} is not a number", value=shown(text)))
    return value


def _share(text: str) -> float:
    value = _decimal(text.rstrip("% "))
    if not 0 < value <= 100:
        raise ValueError(Wording("write a percentage above 0 and up to 100, such as 80"))
    return float(value / 100)


def _share_text(value: float) -> str:
    return _plain(Decimal(repr(value)) * 100)


def _rate(text: str) -> float:
    """`400Gb/s`, or a number of bytes per second."""
    return float(_decimal(text)) if text[-1:].isdecimal() else parse_bit_rate(text)


def _rate_text(value: float) -> str:
    for letter, bits in _UNITS:
        text = f"{value * 8 / bits:.15g}{letter}b/s"
        if value * 8 >= bits and "e" not in text and _rate(text) == value:
            return text
    return _plain(Decimal(repr(value)))


def seconds_of(text: str, least: float = 1.0, most: float = 86400.0) -> float:
    """`30m`, or a number of seconds."""
    plain = text.removesuffix("s")
    if plain.replace(".", "", 1).isdecimal():
        value = float(_decimal(plain))
    else:
        value = parse_duration(text)
    if not least <= value <= most:
        problem = Wording(
            "{value} is outside {low} to {high}: choose a duration within",
            value=shown(text),
            low=f"{least:g}s",
            high=f"{most / 3600:g}h",
        )
        raise ValueError(problem)
    return value


def _seconds_text(value: float) -> str:
    return f"{_plain(Decimal(repr(value)))}s"


def _microseconds(text: str) -> float:
    """`2.5us`, or a number of microseconds, in seconds."""
    return float(_decimal(text.removesuffix("us").rstrip()) / 1_000_000)


def _microseconds_text(value: float) -> str:
    return f"{_plain(Decimal(repr(value)) * 1_000_000)}us"


def _plain(value: Decimal) -> str:
    return f"{value.normalize():f}"


TEXT = Spelling(str, str)
NUMBER = Spelling(_number, str)
NAMES = Spelling(names_of, "\n".join)
PAIRS = Spelling(pairs_of, lines_of)
RATE = Spelling(_rate, _rate_text)
SHARE = Spelling(_share, _share_text)
SECONDS = Spelling(seconds_of, _seconds_text)
MICROSECONDS = Spelling(_microseconds, _microseconds_text)
CHECKED = Spelling("yes".__eq__, lambda value: "yes" if value else "")
NOT_REFUSED = Spelling("no".__ne__, lambda value: "" if value else "no")


LABEL = "where."
"""Prefix of the fields with a list of a label's values."""


def labels_of(
    members: Iterable[Member], most_values: int = 30, most_labels: int = 8
) -> dict[str, dict[str, int]]:
    """The labels of the members with few values, with the number of nodes per value. A label that
    has another value on each node is a name, and is left out.
    """
    counts: dict[str, dict[str, int]] = {}
    total = 0
    for member in members:
        total += 1
        for name, value in member.labels.items():
            if value:
                values = counts.setdefault(name, {})
                if value in values or len(values) <= most_values:
                    values[value] = values.get(value, 0) + 1
    chosen = [
        name
        for name, values in sorted(counts.items())
        if len(values) <= most_values and (total <= 2 or len(values) < total)
    ]
    return {name: dict(sorted(counts[name].items())) for name in chosen[:most_labels]}


def wanted_labels(fields: Mapping[str, str]) -> dict[str, str]:
    """The labels from the text field and from the lists. Raises ValueError."""
    typed = pairs_of(fields.get("where", ""))
    chosen = {
        name[len(LABEL) :]: value
        for name, value in fields.items()
        if name.startswith(LABEL) and value and len(name) > len(LABEL)
    }
    if twice := typed.keys() & chosen.keys():
        name = shown(min(twice))
        raise ValueError(Wording("{name} is chosen above, too: remove one", name=name))
    return {**typed, **chosen}


def with_lists(
    fields: Mapping[str, str], labels: Mapping[str, Mapping[str, int]]
) -> dict[str, str]:
    """The fields, with labels moved from the text field to the lists that have them."""
    listed = dict(fields)
    try:
        where = pairs_of(listed.get("where", ""))
    except ValueError:
        return listed
    left = {}
    for name, value in where.items():
        if value in labels.get(name, ()) and not listed.get(LABEL + name):
            listed[LABEL + name] = value
        else:
            left[name] = value
    listed["where"] = lines_of(left)
    return listed
