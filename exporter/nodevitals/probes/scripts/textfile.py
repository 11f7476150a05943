"""Parses a Prometheus text file. Pure: bytes in, samples out.

https://prometheus.io/docs/instrumenting/exposition_formats/#text-based-format, without timestamps.
Unprivileged jobs write these files: invalid lines are counted.
"""

from __future__ import annotations

import math
import re

import msgspec

MAX_LABELS = 24
MAX_NAME_CHARACTERS = 100
MAX_VALUE_CHARACTERS = 128
# Prometheus sets these labels itself; rules and routes trust them.
_TAKEN = ("job", "instance", "cluster", "metric")

_METRIC = re.compile(r"[a-zA-Z_:][a-zA-Z0-9_:]*")
_TEXT_LABEL = re.compile(r'[ \t]*([a-z][a-z0-9_]*)[ \t]*=[ \t]*"((?:[^"\\]|\\.)*)"[ \t]*(?:,|\Z)')
_NUMBER = re.compile(
    r"[-+]?(?:[0-9]{1,40}(?:\.[0-9]{0,40})?|\.[0-9]{1,40})(?:[eE][-+]?[0-9]{1,3})?"
)
_BLANKS = " \t"
_ESCAPES = {r"\\": "\\", r"\"": '"', r"\n": "\n"}
_ESCAPE = re.compile(r"\\.")


class UnreadableTextError(Exception):
    """The file is not a complete text file; the text is the reason."""


class TextSample(msgspec.Struct, frozen=True):
    """One line: the metric's name, its labels in their order, and the value."""

    name: str
    labels: tuple[tuple[str, str], ...]
    value: float


class Parsed(msgspec.Struct, frozen=True):
    """The samples of a file, and the number of lines that are no valid sample."""

    samples: tuple[TextSample, ...]
    invalid: int


def parse_textfile(data: bytes, max_samples: int) -> Parsed:
    """The samples of a file, at most `max_samples` plus one. Raises UnreadableTextError."""
    if not data.endswith(b"\n"):
        raise UnreadableTextError("its last line is not complete: it is being written")
    if b"\0" in data:
        raise UnreadableTextError("it contains NUL bytes")
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError:
        raise UnreadableTextError("it is not UTF-8") from None
    samples: list[TextSample] = []
    invalid = 0
    for line in text.split("\n"):
        stripped = line.strip()
        if not stripped or stripped.startswith("#"):
            continue
        if len(samples) > max_samples:
            break
        sample = _sample(stripped)
        if sample is None:
            invalid += 1
        elif not math.isnan(sample.value):  # an unknown value is left out
            samples.append(sample)
    return Parsed(tuple(samples), invalid)


def _sample(line: str) -> TextSample | None:
    metric = _METRIC.match(line)
    if metric is None or len(metric[0]) > MAX_NAME_CHARACTERS:
        return None
    rest = line[metric.end() :]
    text, value = "", rest
    if rest.lstrip(_BLANKS).startswith("{"):
        text, brace, value = rest.lstrip(_BLANKS)[1:].rpartition("}")
        if not brace:
            return None
    elif not rest.startswith((" ", "\t")):
        return None
    labels, value = _labels(text), value.strip(_BLANKS)
    number = float(value) if _NUMBER.fullmatch(value) else math.inf
    if value == "NaN":
        number = math.nan
    return None if labels is None or math.isinf(number) else TextSample(metric[0], labels, number)


def _labels(text: str) -> tuple[tuple[str, str], ...] | None:
    labels: dict[str, str] = {}
    place = 0
    while text[place:].strip(" \t"):
        match = _TEXT_LABEL.match(text, place)
        if match is None or match[1] in labels or match[1] in _TAKEN or len(labels) == MAX_LABELS:
            return None
        value = _ESCAPE.sub(lambda escape: _ESCAPES.get(escape[0], "\0"), match[2])
        if len(value) > MAX_VALUE_CHARACTERS or not value.isprintable():
            return None
        labels[match[1]] = value
        place = match.end()
    return tuple(labels.items())
