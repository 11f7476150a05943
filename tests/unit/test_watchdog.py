"""A Watchdog that stops is noticed once, and its return once."""

from __future__ import annotations

import pytest

from nodevitals_hub.notify.watchdog import Change, Watch, text_of
from nodevitals_hub.settings.response import Language

AFTER = 300.0


def test_a_missing_watchdog_is_noticed_once_and_so_is_its_return() -> None:
    watch = Watch({"a": 0.0})
    assert watch.look({}, 299.0, AFTER) == []
    assert watch.look({}, 300.0, AFTER) == [Change("a", "missing")]
    assert watch.look({}, 900.0, AFTER) == []
    assert watch.look({"a": 1000.0}, 1001.0, AFTER) == [Change("a", "back")]
    assert watch.look({"a": 1000.0}, 1299.0, AFTER) == []


def test_each_cluster_has_its_own() -> None:
    watch = Watch({"a": 0.0})
    assert watch.look({"a": 290.0, "b": 10.0}, 310.0, AFTER) == [Change("b", "missing")]


@pytest.mark.parametrize("language", ["en", "zh", "both"])
@pytest.mark.parametrize("missing", [AFTER, None])
def test_a_cluster_is_data_which_no_robot_executes(
    language: Language, missing: float | None
) -> None:
    """Its name is a label of a message."""
    hostile = '<at user_id="all">@all\n`x` [a](https://evil.example)\x1b[2J' + "x" * 9999
    text = text_of(hostile, missing, language)
    whole = text.title + text.body
    assert not [mark for mark in ("<", "@", "`", "](", "\x1b") if mark in whole]
    assert "\n" not in text.title
    assert len(whole) < 2000


@pytest.mark.parametrize("language", ["en", "zh", "both"])
@pytest.mark.parametrize("missing", [AFTER, None])
def test_the_text_names_the_cluster_and_the_time(language: Language, missing: float | None) -> None:
    text = text_of("atlas", missing, language)
    assert "atlas" in text.title
    assert (" 5 " in text.body) == (missing is not None)
    assert "{" not in text.title + text.body
