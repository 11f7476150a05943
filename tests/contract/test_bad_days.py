"""Every test that docs/bad-days.md names exists."""

from __future__ import annotations

import re
from collections import Counter

import pytest

from testbed.node import ROOT

PAGE = (ROOT / "docs/bad-days.md").read_text()
ROWS = re.findall(r"^\| .*\| (`.*`) \|$", PAGE, re.MULTILINE)
TEST = re.compile(r"(?:(?P<file>[\w/.]+\.py|…)(?:::)?)?(?P<name>test_[\w…]+)?(?:\[(?P<id>\w+)\])?")


def test_there_are_rows() -> None:
    assert len(ROWS) > 40


def test_each_bad_day_is_one_row() -> None:
    """Rows that two branches changed come back as two, of which one is old."""
    days = re.findall(r"^\| (.*?) \| ", PAGE, re.MULTILINE)
    assert [day for day, number in Counter(days).items() if number > 1] == []


@pytest.mark.parametrize("row", ROWS)
def test_every_named_test_exists(row: str) -> None:
    """`…` is the file named before, or any end of a name; `[…]` is a parameter."""
    file = ""
    for text in re.findall(r"`([^`]*)`", row):
        found = TEST.fullmatch(text)
        assert found, text
        if found["file"] not in (None, "…"):
            file = found["file"] if "/" in found["file"] else f"tests/integration/{found['file']}"
        source = (ROOT / file).read_text()
        name = re.escape(found["name"] or "").replace("…", r"\w*")
        assert not name or re.search(rf"^def {name}\(", source, re.MULTILINE), text
        assert not found["id"] or f'"{found["id"]}"' in source, text
