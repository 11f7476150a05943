"""Finds the JSON that a tool prints among other text, or the last line of that text. Pure.

In: the output of a tool, which may be cut off, nested without end, or have NaN and numbers of any
length. Out: the object with the wanted key, or None.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Sequence
from typing import Any

MAX_DIGITS = 18
# Text before the document may contain braces; a text with more braces is not the output of a tool.
MAX_STARTS = 20
_START = re.compile(r"\{")


def find_document(text: str, keys: Sequence[str]) -> dict[str, Any] | None:
    """The object below the first of these keys, in the first JSON object that has one."""
    decoder = json.JSONDecoder(parse_int=_integer)
    for number, start in enumerate(_START.finditer(text)):
        if number >= MAX_STARTS:
            return None
        try:
            document, _ = decoder.raw_decode(text, start.start())
        except (ValueError, RecursionError):
            continue
        for key in keys:
            if isinstance(document.get(key), dict):
                inner: dict[str, Any] = document[key]
                return inner
    return None


def objects(value: object) -> list[dict[str, Any]]:
    """The objects of an array; DCGM 3 puts null between them. None for any other value."""
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def text_of(value: object) -> str:
    """A string of JSON; '' for any other value."""
    return value if isinstance(value, str) else ""


def last_line(text: str) -> str:
    """The last line of an output that is not empty."""
    return next((line for line in reversed(text.splitlines()) if line.strip()), "nothing")


def _integer(digits: str) -> float:
    """An integer as a float: Python before 3.11 takes seconds to parse a million digits."""
    return int(digits) if len(digits) <= MAX_DIGITS else math.inf
