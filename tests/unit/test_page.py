"""The page at /, rendered from records: lengths of time, limits, links, a loop that hangs."""

from __future__ import annotations

import pytest

from nodevitals.engine.results import STATES, TargetView
from nodevitals.web.page import MAX_PROBLEMS, Overview, render, span

NOW = 1000.0


def view(number: int, state: str = "ok", text: str = "") -> TargetView:
    return TargetView("mounts", f"/mnt/{number}", state, "", text, NOW - 5, 0.25, NOW + 7, None)


def page(*targets: TargetView, path: str = "/metrics", health: str = "") -> str:
    overview = Overview("node", "1.2.3", NOW - 90, 0.0, (), health, targets)
    return render(overview, path, NOW).decode()


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        *((-1, "0 s"), (0.4, "0 s"), (119, "119 s"), (120, "2 min"), (3599, "59 min")),
        *((3600, "1 h"), (7500, "2 h 5 min"), (86400, "1 d"), (100000, "1 d 3 h")),
    ],
)
def test_length_of_time(seconds: float, text: str) -> None:
    assert span(seconds) == text


@pytest.mark.parametrize(
    ("path", "link"),
    [
        ("/a/b", "./a/b"),
        ('/"><script>', "./%22%3E%3Cscript%3E"),
        ("/a&b?c#d", "./a&amp;b%3Fc%23d"),
        ("//elsewhere.example/metrics", ".//elsewhere.example/metrics"),
        ("/%41", "./%41"),
    ],
)
def test_path_of_the_metrics_is_escaped(path: str, link: str) -> None:
    assert f'<a href="{link}">All metrics</a>' in page(path=path)
    assert f'<a href="{link}?collect[]=mounts">' in page(view(1), path=path)


def test_loop_that_hangs_is_reported() -> None:
    assert "Not healthy: no tick for 12 s" in page(view(1), health="no tick for 12 s")
    assert "Not healthy" not in page(view(1))


def test_of_many_problems_of_a_reload_the_first_are_shown() -> None:
    problems = [f"line {number}: unknown key" for number in range(1, 31)]
    overview = Overview("node", "1.2.3", NOW - 90, 0.0, problems, "", ())
    text = render(overview, "/metrics", NOW).decode()
    assert text.count("unknown key") == MAX_PROBLEMS
    assert f"<li>and {30 - MAX_PROBLEMS} more, in the log</li>" in text


@pytest.mark.parametrize("state", STATES)
def test_states_look_good_bad_or_neither(state: str) -> None:
    neutral = {"waiting": "none", "absent": "none", "ok": "good"}
    assert f'<td class="{neutral.get(state, "bad")}">{state}</td>' in page(view(1, state))


def test_no_targets() -> None:
    assert "<h2>Targets: none configured</h2>" in page()
    assert "<table>" not in page()


def test_failures_come_first_and_are_within_the_limit() -> None:
    text = page(*(view(number) for number in range(2000)), view(9999, "timeout"))
    assert "<h2>Targets: 1 timeout, 2000 ok</h2>" in text
    assert text.index("/mnt/9999") < text.index("/mnt/0<")
    assert "And 1001 more: 1001 ok." in text


def test_size_is_limited_whatever_the_texts_are() -> None:
    """A surrogate, of a file name that is no UTF-8, takes six characters."""
    longest = view(1, "error", "\udc80" * 500)._replace(target="\U0010ffff" * 8000)
    text = page(*[longest] * 3000)
    assert "\\udc80" in text
    assert len(text.encode()) < 4_000_000
