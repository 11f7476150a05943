"""Every pattern has a sample, and what only looks like an event is none."""

from __future__ import annotations

from pathlib import Path

import pytest

from nodevitals.probes.kernel_log.events import PATTERNS, event_of, suppressed

SAMPLES = [
    tuple(line.split("\t", 1))
    for line in (Path(__file__).parent / "kernel_messages.txt").read_text().splitlines()
    if not line.startswith("#")
]


@pytest.mark.parametrize(("event", "text"), SAMPLES)
def test_a_message_tells_its_event(event: str, text: str) -> None:
    assert (event_of(text) or "-") == event


def test_every_pattern_is_the_one_that_finds_some_sample() -> None:
    used = {
        next(p for p in PATTERNS if p.hint in text and p.expression.match(text))
        for event, text in SAMPLES
        if event != "-"
    }
    assert used == set(PATTERNS)


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("trainer: 412 callbacks suppressed", 412),
        ("__ratelimit: 7 callbacks suppressed", 7),
        ("printk: systemd: 31 output lines suppressed due to ratelimiting", 31),
        ("nothing suppressed here", 0),
        ("callbacks", 0),
    ],
)
def test_what_rate_limits_kept_out_is_counted(text: str, count: int) -> None:
    assert suppressed(text) == count
