"""Parses what a check prints. Pure: text in, text and values out.

Formats: https://nagios-plugins.org/doc/guidelines.html (performance data), and the last line of
`nhc` (https://github.com/mej/nhc). Invalid items are counted and never guessed.
"""

from __future__ import annotations

import math
import re
from typing import Optional

import msgspec

from nodevitals.wire import without_controls

MAX_VALUES = 64
MAX_LABEL_CHARACTERS = 64
MAX_TEXT_CHARACTERS = 200
STATUS_OF_EXIT = {0: "ok", 1: "warning", 2: "critical", 3: "unknown"}

# 'label'=value[unit];[warn];[crit];[min];[max]; a quote in a quoted label is written twice.
_ITEM = re.compile(
    r"(?:'(?P<quoted>(?:[^'=]|'')+)'|(?P<plain>[^\s'=]+))"
    r"=(?P<value>[^\s;'=]*)(?P<limits>(?:;[-+0-9.eE:~@]*){0,4});?(?=\s|\Z)"
)
_VALUE = re.compile(
    r"([-+]?(?:[0-9]{1,32}(?:\.[0-9]{0,32})?|\.[0-9]{1,32})(?:[eE][-+]?[0-9]{1,3})?)(.*)"
)
_SECONDS = {"s": 1.0, "ms": 1e-3, "us": 1e-6}
_BYTES = {"B": 0, "KB": 1, "MB": 2, "GB": 3, "TB": 4}
_NHC_FAILURE = re.compile(r"ERROR:\s+\S+:\s+Health check failed:\s+(.*)")


class Value(msgspec.Struct, frozen=True):
    """One value in a base unit: none, seconds, ratio, bytes, or counter for the unit c."""

    label: str
    value: float
    unit: str


class Report(msgspec.Struct, frozen=True):
    """The first line without its performance data, the values, and the number of invalid items."""

    text: str = ""
    values: tuple[Value, ...] = ()
    invalid: int = 0


def parse_output(text: str, kilobyte: int = 1000) -> Report:
    """Parse the output of a plugin: text and performance data on the first line, more of both
    below. `kilobyte` is 1000 or 1024 bytes: the guidelines do not specify it.
    """
    first, _, rest = text.partition("\n")
    said, _, data = first.partition("|")
    further = rest.partition("|")[2]
    values: dict[str, Value] = {}
    invalid = 0
    for item in _items(f"{data}\n{further}"):
        unknown = item is not None and item["value"] == "U"
        value = None if item is None or unknown else _value(item, kilobyte)
        if value is not None and value.label not in values and len(values) < MAX_VALUES:
            values[value.label] = value
        elif not unknown:
            invalid += 1
    return Report(clean(said), tuple(values.values()), invalid)


def parse_nhc(text: str) -> Optional[str]:
    """The check that failed, by the line that nhc prints; None without that line."""
    match = _NHC_FAILURE.search(text)
    return clean(match[1]) if match else None


def clean(text: str) -> str:
    """One line of bounded length without control characters."""
    words = " ".join(text[: 8 * MAX_TEXT_CHARACTERS].split())
    return without_controls(words)[:MAX_TEXT_CHARACTERS]


def first_line(text: str) -> str:
    """The first line that has any text, cleaned."""
    return next((clean(line) for line in text.splitlines() if line.strip()), "")


def _items(data: str) -> list[Optional[re.Match[str]]]:
    """The items of performance data; None for each word that is no item."""
    items: list[Optional[re.Match[str]]] = []
    place = 0
    while len(items) <= 4 * MAX_VALUES:
        while place < len(data) and data[place].isspace():
            place += 1
        if place == len(data):
            break
        match = _ITEM.match(data, place)
        items.append(match)
        if match is not None:
            place = match.end()
        else:
            while place < len(data) and not data[place].isspace():
                place += 1
    return items


def _value(item: re.Match[str], kilobyte: int) -> Optional[Value]:
    quoted = item["quoted"]
    label = item["plain"] if quoted is None else quoted.replace("''", "'")
    match = _VALUE.fullmatch(item["value"])
    fits = len(label) <= MAX_LABEL_CHARACTERS and label.isprintable() and label == label.strip()
    if match is None or not fits:
        return None
    number, unit = float(match[1]), match[2]
    if unit == "":
        scaled, base = number, "none"
    elif unit == "%":
        scaled, base = number / 100, "ratio"
    elif unit in _SECONDS:
        scaled, base = number * _SECONDS[unit], "seconds"
    elif unit in _BYTES:
        scaled, base = number * kilobyte ** _BYTES[unit], "bytes"
    elif unit == "c" and number >= 0:
        scaled, base = number, "counter"
    else:
        return None
    return Value(label, scaled, base) if math.isfinite(scaled) else None
