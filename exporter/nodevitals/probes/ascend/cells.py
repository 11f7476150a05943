"""The last segment of a row of `npu-smi info`: its header to columns, its text to values.

The values have the order of the header's words. A segment whose words do not fit its columns one by
one, in number and type, has no values at all: which word belongs to which column is unknown.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

Columns = tuple[str, ...]
"""Names of columns in their order; '' for one that is not used."""
Values = dict[str, tuple[float, ...]]
"""A number, or a pair, by the name of its column."""

NO_VALUE = ("-", "NA", "N/A")
# The columns where no header names them, by the row of a chip.
DEFAULTS: dict[int, tuple[Columns, ...]] = {
    0: (("power", "temperature", "hugepages"), ("power", "temperature")),
    1: (("utilization", "memory", "hbm"), ("utilization", "memory")),
}
_COLUMN_WORDS = (
    ("power", "power"),
    ("temp", "temperature"),
    ("hugepages", "hugepages"),
    ("aicore", "utilization"),
    ("npu util", "utilization"),
    ("memory-usage", "memory"),
    ("hbm-usage", "hbm"),
)
_PAIR_COLUMNS = ("hugepages", "memory", "hbm")
_PAIR = re.compile(r"(?<!\d)(\d{1,15})\s*/\s*(\d{1,15})(?!\d)")
_NUMBER = re.compile(r"-?\d{1,15}(?:\.\d{1,15})?")


def parse_header(cells: tuple[str, ...]) -> tuple[int, Columns] | None:
    """The row of a chip (0 or 1) that a header describes, and the columns of its last segment;
    None for what is no header.
    """
    second_to_last = cells[-2].lower()
    if second_to_last not in ("health", "bus-id"):
        return None
    # The only header with a space within.
    words = cells[-1].lower().replace("npu util", "npu_util").split()
    return (0 if second_to_last == "health" else 1), tuple(map(_column_of, words))


def _column_of(word: str) -> str:
    plain = word.replace("npu_util", "npu util")
    return next((name for part, name in _COLUMN_WORDS if part in plain), "")


def parse_values(text: str, choices: Iterable[Columns]) -> Values | None:
    """The values of a segment by the first of these columns that are as many as its words; None
    where they do not fit.
    """
    words = _PAIR.sub(lambda pair: f"{pair[1]}/{pair[2]}", text).split()
    for columns in choices:
        if len(columns) == len(words):
            values = {}
            for column, word in zip(columns, words):
                value = _value(column, word)
                if value is None:
                    return None
                if value:
                    values[column] = value
            return values
    return None


def _value(column: str, word: str) -> tuple[float, ...] | None:
    """One word: its number or pair, () where it has no value, None where it is not of the column's
    type.
    """
    if word in NO_VALUE or not column:
        return ()
    pair = _PAIR.fullmatch(word)
    if column in _PAIR_COLUMNS:
        return (float(pair[1]), float(pair[2])) if pair and int(pair[1]) <= int(pair[2]) else None
    if pair or not _NUMBER.fullmatch(word):
        return None
    number = float(word)
    if column == "utilization" and not 0 <= number <= 100:
        return None
    if column == "temperature" and not -60 <= number <= 200:
        return None
    return (number,) if column != "power" or number >= 0 else None
