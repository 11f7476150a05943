"""Every pattern matches a sample, and messages that only resemble an event match none."""

from __future__ import annotations

from pathlib import Path

import pytest

from nodevitals.probes.kernel_log.families import PATTERNS, event_of, suppressed

SAMPLES = [
    tuple(line.split("\t", 1))
    for line in (Path(__file__).parent / "kernel_messages.txt").read_text().splitlines()
    if not line.startswith("#")
]


@pytest.mark.parametrize(("event", "text"), SAMPLES)
def test_message_has_its_event(event: str, text: str) -> None:
    assert (event_of(text) or "-") == event


def test_every_pattern_is_the_first_to_match_some_sample() -> None:
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
def test_number_of_suppressed_messages_is_read(text: str, count: int) -> None:
    assert suppressed(text) == count
