"""Alertmanager's configuration, as the back-test reads it."""

from __future__ import annotations

import pytest

from nodevitals.commands.rules.backtest.routing import Integration, parse_routing
from nodevitals.document import DocumentError
from testbed.node import ROOT


def test_shipped_configuration_is_read() -> None:
    routing = parse_routing((ROOT / "alertmanager/alertmanager.yaml").read_bytes())
    routes = routing.root.matching({"severity": "critical", "instance": "n"})
    assert "on-call" in [route.receiver for route in routes]
    assert routing.receivers["null"] == ()
    assert routing.receivers["on-call"], "also where its integration is not filled in"


def test_receivers_without_integrations_count_as_one() -> None:
    text = b"route: {receiver: a}\nreceivers: [{name: a}, {name: 'null'}]"
    found = parse_routing(text).receivers
    assert found == {"a": (Integration("unset", True),), "null": ()}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (b"route: {receiver: a}", "receiver 'a' is not defined"),
        (b"route: {receiver: a, group_wait: soon}\nreceivers: [{name: a}]", "not a duration"),
        (b"route: {receiver: a, matchers: ['x']}\nreceivers: [{name: a}]", "not a matcher"),
        (
            b"route: {receiver: a, mute_time_intervals: [x]}\nreceivers: [{name: a}]",
            "time interval 'x' is not defined",
        ),
        (
            (
                b"route: {receiver: a}\nreceivers: [{name: a}]\ntime_intervals:\n"
                b"  - {name: x, time_intervals: [{location: Mars/Olympus}]}"
            ),
            "is not on this machine",
        ),
    ],
)
def test_what_alertmanager_would_refuse_is_an_error(text: bytes, message: str) -> None:
    with pytest.raises(DocumentError, match=message):
        parse_routing(text)
