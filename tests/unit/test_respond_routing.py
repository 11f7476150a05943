"""Which alerts go to which channels."""

from __future__ import annotations

from datetime import datetime
from typing import Any
from zoneinfo import ZoneInfo

import msgspec
import pytest

from nodevitals_hub.notify.routing import channels_for
from nodevitals_hub.records import Alert, Message
from nodevitals_hub.settings.hub import HubSettings
from nodevitals_hub.settings.response import NotifySettings

BERLIN = "Europe/Berlin"


def alert(number: int = 0, status: str = "firing", **labels: str) -> dict[str, Any]:
    """Return an alert as Alertmanager sends it."""
    return {"status": status, "fingerprint": f"{number:016x}", "labels": labels}


def settings(*routes: dict[str, Any], zone: str = "UTC") -> NotifySettings:
    """Return a section `notify` with the channels of its routes."""
    names = {name for route in routes for name in route["channels"]}
    channels = {name: {"url_file": f"/secrets/{name}"} for name in names}
    section = {"channels": channels, "routes": routes, "time_zone": zone}
    return msgspec.convert(section, NotifySettings)


def routed(
    found: NotifySettings,
    *alerts: dict[str, Any],
    receiver: str = "chat",
    at: str = "2026-11-02 12:00",
    fold: int = 0,
    pools: dict[str, str] | None = None,
) -> dict[str, list[int]]:
    """Return the numbers of the alerts for each channel, at a local time."""
    moment = datetime.fromisoformat(at).replace(tzinfo=ZoneInfo(found.time_zone), fold=fold)
    body = {"version": "4", "groupKey": "k", "receiver": receiver, "status": "firing"}
    message = msgspec.convert({**body, "alerts": alerts}, Message)

    def pool_of(one: Alert) -> str:
        return (pools or {}).get(one.labels.get("instance", ""), "")

    chosen = channels_for(message, found, pool_of, moment.timestamp())
    return {name: [int(one.fingerprint, 16) for one in some] for name, some in chosen.items()}


def is_open(route: dict[str, Any], at: str, zone: str = "UTC", fold: int = 0) -> bool:
    """Return whether a route takes an alert at a local time."""
    return bool(
        routed(settings({"channels": ["ops"], **route}, zone=zone), alert(), at=at, fold=fold)
    )


def test_every_route_that_matches_is_used_and_an_alert_goes_to_a_channel_once() -> None:
    found = settings(
        {"channels": ["ops"]},
        {"channels": ["ops", "storage"], "components": ["mount"]},
        {"channels": ["pager"], "severities": ["critical"]},
        {"channels": ["other"], "receivers": ["on-call"]},
    )
    alerts = (
        alert(1, severity="critical", component="mount"),
        alert(2, severity="warning", component="node"),
        alert(3, severity="critical"),
    )
    assert routed(found, *alerts) == {"ops": [1, 2, 3], "storage": [1], "pager": [1, 3]}
    assert routed(found, alerts[1], receiver="on-call") == {"ops": [2], "other": [2]}


def test_all_conditions_of_a_route_hold_together() -> None:
    found = settings({"channels": ["ops"], "severities": ["critical"], "components": ["mount"]})
    assert routed(found, alert(severity="critical", component="node")) == {}
    assert routed(found, alert(severity="warning", component="mount")) == {}
    assert routed(found, alert(severity="critical", component="mount")) == {"ops": [0]}


def test_pool_is_that_of_the_alert_else_that_of_the_node() -> None:
    found = settings({"channels": ["ops"], "pools": ["train"]})
    pools = {"gpu-1": "train", "gpu-2": "serve"}
    alerts = (
        alert(1, instance="gpu-1"),
        alert(2, instance="gpu-2"),
        alert(3, instance="gpu-2", pool="train"),
        alert(4, instance="gpu-1", pool="serve"),
        alert(5, instance="gpu-9"),
    )
    assert routed(found, *alerts, pools=pools) == {"ops": [1, 3]}


def test_a_route_may_leave_out_the_end() -> None:
    found = settings({"channels": ["ops"], "resolved": False}, {"channels": ["mail"]})
    alerts = (alert(1), alert(2, status="resolved"))
    assert routed(found, *alerts) == {"ops": [1], "mail": [1, 2]}


@pytest.mark.parametrize(
    ("hours", "at", "expected"),
    [
        ("09:00-18:00", "2026-11-02 08:59", False),
        ("09:00-18:00", "2026-11-02 09:00", True),
        ("09:00-18:00", "2026-11-02 17:59", True),
        ("09:00-18:00", "2026-11-02 18:00", False),
        ("22:00-06:00", "2026-11-02 23:00", True),
        ("22:00-06:00", "2026-11-03 05:59", True),
        ("22:00-06:00", "2026-11-03 06:00", False),
        ("18:00-00:00", "2026-11-02 23:59", True),
        ("18:00-00:00", "2026-11-03 00:00", False),
    ],
)
def test_hours_are_local_and_go_over_midnight(hours: str, at: str, expected: bool) -> None:
    assert is_open({"hours": hours}, at, "Asia/Shanghai") is expected


def test_hours_over_midnight_belong_to_the_day_of_their_begin() -> None:
    friday = {"hours": "22:00-06:00", "days": ["fri"]}
    assert is_open(friday, "2026-11-06 22:00")
    assert is_open(friday, "2026-11-07 05:00"), "Saturday morning is Friday's night"
    assert not is_open(friday, "2026-11-06 05:00"), "Friday morning is Thursday's night"
    assert not is_open(friday, "2026-11-07 22:00")


def test_days_without_hours_are_whole_days() -> None:
    office = {"days": ["mon", "tue", "wed", "thu", "fri"]}
    assert is_open(office, "2026-11-06 23:59")
    assert not is_open(office, "2026-11-07 00:00")


def test_days_are_those_of_the_time_zone() -> None:
    """Monday in Shanghai begins on Sunday at 16:00 UTC."""
    found = settings({"channels": ["ops"], "days": ["mon"]}, zone="Asia/Shanghai")
    assert routed(found, alert(), at="2026-11-02 00:30") == {"ops": [0]}
    assert not is_open({"days": ["mon"]}, "2026-11-01 16:30")


def test_hours_follow_the_clock_on_the_days_on_which_it_is_changed() -> None:
    """In Berlin 02:00 to 03:00 is left out on 2026-03-29, and repeated on 2026-10-25."""
    for day in ("2026-03-28", "2026-03-29", "2026-10-25"):
        assert is_open({"hours": "09:00-18:00"}, f"{day} 09:00", BERLIN)
        assert not is_open({"hours": "09:00-18:00"}, f"{day} 08:59", BERLIN)
    for fold in (0, 1):
        assert is_open({"hours": "02:00-03:00"}, "2026-10-25 02:30", BERLIN, fold)


@pytest.mark.parametrize(
    ("section", "path", "text"),
    [
        ({"routes": [{"channels": ["op"]}]}, "notify.routes[0].channels[0]", "no channel 'op'"),
        ({"routes": [{"channels": ["ops"], "hours": "9-18"}]}, "notify.routes[0].hours", "09:00-"),
        (
            {"routes": [{"channels": ["ops"], "hours": "09:00-09:00"}]},
            "notify.routes[0].hours",
            "not a time of the day",
        ),
        (
            {"routes": [{"channels": ["ops"], "receivers": [""]}]},
            "notify.routes[0].receivers[0]",
            "matches no message",
        ),
        ({"routes": [{"channels": ["ops"]}] * 2}, "notify.routes[1]", "there twice"),
        ({"time_zone": "Asia/Peking"}, "notify.time_zone", "'Asia/Peking' is no time zone"),
        ({"time_zone": "Asia"}, "notify.time_zone", "no time zone"),
        ({"time_zone": "../../etc/passwd"}, "notify.time_zone", "no time zone"),
        ({"time_zone": ""}, "notify.time_zone", "no time zone"),
        ({"owners": {"channel": "mail"}}, "notify.owners.channel", "no channel 'mail'"),
        ({"owners": {"channels": {"ann": "x"}}}, "notify.owners.channels.ann", "no channel 'x'"),
        ({"channels": {"a b": {"url_file": "/x"}}}, "notify.channels.a b", "choose a name"),
    ],
)
def test_settings_that_do_not_fit_are_named(section: dict[str, Any], path: str, text: str) -> None:
    whole = {"channels": {"ops": {"url_file": "/secrets/ops"}}, **section}
    found = list(msgspec.convert({"notify": whole}, HubSettings).problems())
    assert [problem.path for problem in found] == [path]
    assert text in found[0].message


def test_good_settings_have_no_problem() -> None:
    channels = {"ops": {"url_file": "/secrets/ops"}, "mail": {"url_file": "/secrets/mail"}}
    routes = [
        {"channels": ["ops"], "hours": "22:00-06:00", "days": ["fri"]},
        {"channels": ["mail"]},
    ]
    section = {
        "channels": channels,
        "routes": routes,
        "time_zone": "Asia/Shanghai",
        "owners": {"channel": "mail", "channels": {"ann": "ops"}},
    }
    assert list(msgspec.convert({"notify": section}, HubSettings).problems()) == []
