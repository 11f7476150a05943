"""Storms of notifications at robots: within their limits, and none is left out."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from testbed.node import wait_until
from testbed.notifykills import FarSide, hub_with_channels, message, send
from testbed.robots import KEY, SECRET, TOKEN, Robots

NOTIFICATIONS = 150


@pytest.mark.parametrize(
    ("url", "most_bytes"),
    [(f"dingtalk://{SECRET}@{TOKEN}/", 20_000), (f"wecombot://{KEY}/", 2048)],
    ids=["dingtalk", "wecom"],
)
def test_a_storm_is_sent_within_20_messages_of_a_minute(
    tmp_path: Path, url: str, most_bytes: int
) -> None:
    """Each notification is named, each message is as short as the robot asks for, and has the
    cluster in its title.
    """
    with Robots(tmp_path) as robots, FarSide() as far:
        hub = hub_with_channels(tmp_path, far, per_minute=20)
        (tmp_path / "first-url").write_text(url)
        hub.environment = robots.environment()
        robots.hold.clear()
        with hub:
            for number in range(NOTIFICATIONS):
                body = message(number)
                body["alerts"][0]["annotations"]["description"] = "Jobs on it fail. " * 200
                assert send(hub, body).ok
            robots.hold.set()

            def named() -> set[int]:
                texts = [str(sent.body) for sent in list(robots.sent)]
                found = (re.findall(r"test: fault (\d+) of the test", text) for text in texts)
                return {int(number) for numbers in found for number in numbers}

            wait_until(lambda: len(named()) == NOTIFICATIONS, 60, "all of them")
        assert len(robots.sent) <= 20
        assert [sent.problem for sent in robots.sent] == [""] * len(robots.sent)
        for sent in robots.sent:
            text = sent.body["text"]["content"]
            assert "test" in text.splitlines()[0]
            assert len(text.encode()) <= most_bytes
