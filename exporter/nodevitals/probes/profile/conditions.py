"""The condition of a profile on a fact, and whether the texts of the fact fulfil it.

In: plain values of YAML, and texts by device. Out: conditions, answers, and texts for people.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from fnmatch import fnmatchcase
from typing import Any, Literal, Optional

import msgspec

from nodevitals.document import Problem
from nodevitals.probes.common.facts import Values
from nodevitals.wire import without_controls

Kind = Literal["number", "text"]
"""The kind of a fact's texts."""

MAX_TEXT_CHARACTERS = 128
_DEVICES_OF = re.compile(r"(.+) \([^()]+\)")
_KEYS = ("at_least", "at_most", "matches")
_FORMS = "write a value, a list of values, or at_least, at_most or matches"


class Condition(msgspec.Struct, frozen=True):
    """A list of permitted texts, a range of numbers, or a pattern like those for file names."""

    one_of: tuple[str, ...] = ()
    at_least: Optional[float] = None
    at_most: Optional[float] = None
    matches: str = ""

    def fits(self, text: str) -> Optional[bool]:
        """Whether a text fulfils the condition; None if a number is needed and the text is none."""
        if self.one_of:
            return any(_equal(text, wanted) for wanted in self.one_of)
        if self.matches:
            return fnmatchcase(text, self.matches)
        number = _number(text)
        if number is None:
            return None
        low = -math.inf if self.at_least is None else self.at_least
        high = math.inf if self.at_most is None else self.at_most
        return low <= number <= high

    @property
    def text(self) -> str:
        """The condition in words."""
        if self.one_of:
            return " or ".join(self.one_of)
        if self.matches:
            return f"matches {self.matches}"
        low = None if self.at_least is None else f"at least {plain(self.at_least)}"
        high = None if self.at_most is None else f"at most {plain(self.at_most)}"
        return ", ".join(filter(None, (low, high)))


def conforms(condition: Condition, values: Values) -> Optional[bool]:
    """Whether every device fulfils a condition; None if that is unknown."""
    fits = [condition.fits(text) for text in values.values()]
    if False in fits:
        return False
    return None if None in fits or not fits else True


def found_text(values: Values, condition: Optional[Condition] = None) -> str:
    """The texts of a fact in one line: one text if all devices agree, else each text with its
    devices; texts that do not fulfil the condition come first.
    """
    by_text: dict[str, list[str]] = {}
    for device, text in sorted(values.items(), key=lambda item: _natural(item[0])):
        by_text.setdefault(text, []).append(device)
    if len(by_text) == 1:
        return _cut(next(iter(by_text)))

    def order(item: tuple[str, list[str]]) -> tuple[bool, int, str]:
        return condition is not None and condition.fits(item[0]) is True, len(item[1]), item[0]

    parts = [f"{text} ({_devices(names)})" for text, names in sorted(by_text.items(), key=order)]
    return _cut("; ".join(parts))


def found_texts(line: str) -> tuple[str, ...]:
    """The texts in a line of `found_text`; none if the line is empty or truncated."""
    if line.endswith("…") or not line:
        return ()
    parts = [_DEVICES_OF.fullmatch(part) for part in line.split("; ")]
    if len(parts) == 1 and parts[0] is None:
        return (line,)
    return tuple(part[1] for part in parts if part) if all(parts) else ()


def conforms_found(condition: Condition, line: str) -> Optional[bool]:
    """Whether the texts in a line of `found_text` fulfil a condition; None: unknown."""
    return conforms(condition, {str(place): text for place, text in enumerate(found_texts(line))})


def plain(number: float) -> str:
    """A number as a person writes it."""
    return str(int(number)) if number == int(number) else f"{number:g}"


def read_condition(
    raw: object, kind: Kind, path: str, problems: list[Problem]
) -> Optional[Condition]:
    """A condition in a file. Problems are added to `problems`."""
    before = len(problems)
    problems.extend(_problems(raw, kind, path))
    if len(problems) > before:
        return None
    if isinstance(raw, dict):
        return Condition(
            at_least=raw.get("at_least"), at_most=raw.get("at_most"), matches=raw.get("matches", "")
        )
    return Condition(one_of=tuple(map(_text, raw if isinstance(raw, list) else [raw])))


def _problems(raw: object, kind: Kind, path: str) -> Iterator[Problem]:
    if isinstance(raw, dict):
        yield from _mapping_problems(raw, kind, path)
        return
    for index, item in enumerate(raw if isinstance(raw, list) else [raw]):
        place = f"{path}[{index}]" if isinstance(raw, list) else path
        if isinstance(item, bool) or not isinstance(item, (str, int, float)) or item == "":
            yield Problem(place, f"not a value of a fact: {_FORMS}")
        elif kind == "number" and _number(_text(item)) is None:
            yield Problem(place, "not a number, and this fact is one: write a number")
        elif kind == "text" and isinstance(item, float):
            yield Problem(place, 'a number in YAML, which loses digits ("1.10" is 1.1): quote it')
    if raw == []:
        yield Problem(path, f"no values: {_FORMS}")


def _mapping_problems(raw: dict[Any, Any], kind: Kind, path: str) -> Iterator[Problem]:
    unknown = [key for key in raw if key not in _KEYS]
    if unknown or not raw or ("matches" in raw and len(raw) > 1):
        yield Problem(path, f"not a condition: {_FORMS}")
        return
    if "matches" in raw and not (isinstance(raw["matches"], str) and raw["matches"]):
        yield Problem(f"{path}.matches", "not a pattern: write a text with * for any characters")
    bounds = [raw[key] for key in _KEYS[:2] if key in raw]
    wrong = [
        bound for bound in bounds if isinstance(bound, bool) or not isinstance(bound, (int, float))
    ]
    if wrong:
        yield Problem(path, "at_least and at_most need numbers: write digits")
    elif len(bounds) == 2 and bounds[0] > bounds[1]:
        yield Problem(path, "at_least is over at_most: exchange them")
    if "matches" in raw and kind == "number":
        yield Problem(f"{path}.matches", "this fact is a number: use at_least and at_most")


def _text(value: object) -> str:
    return plain(value) if isinstance(value, float) else str(value)


def _equal(text: str, wanted: str) -> bool:
    if text == wanted:
        return True
    numbers = _number(text), _number(wanted)
    return None not in numbers and numbers[0] == numbers[1] and "." not in text + wanted


def _number(text: str) -> Optional[float]:
    try:
        number = float(text)
    except ValueError:
        return None
    return number if math.isfinite(number) else None


def _natural(name: str) -> tuple[str, int, str]:
    head = name.rstrip("0123456789")
    digits = name[len(head) :]
    return head, int(digits) if digits else -1, name


def _devices(names: list[str]) -> str:
    return ", ".join(names) if len(names) <= 2 else f"{len(names)} devices"


def _cut(text: str) -> str:
    clean = without_controls(text)
    return clean if len(clean) <= MAX_TEXT_CHARACTERS else clean[: MAX_TEXT_CHARACTERS - 1] + "…"
