"""Every parser reads any text in bounded time: it raises only what it declares, and returns no
number that is none. A megabyte of each: python -m tests.bench parsers
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from typing import Any

import pytest

from nodevitals.probes.fabric.tools import PARSERS
from testbed import tooloutput as out
from testbed.hostile import PARSED, Parser, hostile_texts, numbers_in, texts_with_long_numbers
from testbed.patterns import TooSlowError, cpu_limit

SIZE = 100_000
# The square of it takes minutes in Python and seconds in a regular expression.
CPU_SECONDS = 2.0


def read(parser: Parser, text: str) -> None:
    """Parse a text, and check what comes out."""
    try:
        with cpu_limit(CPU_SECONDS):
            result = parser.parse(text)
    except parser.errors:
        return
    except TooSlowError:
        pytest.fail(f"over {CPU_SECONDS} s for {text[:80]!r}…")
    for number in numbers_in(result):
        # A whole number of any size would fail later, as a float or as text.
        assert abs(number) < 1e30
        assert math.isfinite(number)


@pytest.mark.parametrize("name", PARSED)
def test_text_is_read(name: str) -> None:
    """Else the hostile ones would prove nothing."""
    parser = PARSED[name]
    assert parser.parse(parser.text) not in (None, [], {}, False, 0, "")


@pytest.mark.parametrize("name", PARSED)
def test_hostile_text_is_read_in_bounded_time(name: str) -> None:
    for text in hostile_texts(PARSED[name], SIZE):
        read(PARSED[name], text)


@pytest.mark.parametrize("name", PARSED)
def test_number_of_many_digits(name: str) -> None:
    for text in texts_with_long_numbers(PARSED[name]):
        read(PARSED[name], text)


def test_json_that_is_no_report() -> None:
    """iperf3's: any value may be of any type."""
    text = out.iperf3(9.4e9)
    whole = json.loads(text[text.index("{") :])
    values: tuple[object, ...] = (None, 7, -1, "text", [], {}, True, math.nan, math.inf, 10**400)
    for value in values:
        for path in _paths(whole):
            document = json.loads(json.dumps(whole))
            _place(document, path, value)
            read(Parser(PARSERS["iperf3"], ""), json.dumps(document))


def _paths(document: object, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    if path:
        yield path
    parts = document.items() if isinstance(document, dict) else ()
    for key, value in parts:
        yield from _paths(value, (*path, key))


def _place(document: Any, path: tuple[Any, ...], value: object) -> None:
    for key in path[:-1]:
        document = document[key]
    document[path[-1]] = value
