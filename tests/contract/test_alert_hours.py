"""As shipped, no hour keeps a notification back; a site sets its own."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from datetime import datetime, timezone
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest
import yaml

from nodevitals.commands.init import outputs
from testbed.charts import of_kind, render
from testbed.node import ROOT
from testbed.servers import BINARIES

FILES = {
    name: (ROOT / "alertmanager" / name).read_text()
    for name in ("alertmanager.yaml", "minimal.yaml")
}
WEEKDAYS = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")


def chart(kind: str, configuration: str) -> dict[str, Any]:
    """Return the object of a kind that the chart makes of Alertmanager's values by default."""
    values = {"alertmanager": {"kind": kind, "configuration": configuration}}
    [made] = [
        one
        for one in of_kind(render(values), kind)
        if one["metadata"]["name"] == "nodevitals-alertmanager"
    ]
    return made


def configurations() -> Iterator[tuple[str, str]]:
    """Yield each configuration as a site gets it, by its place."""
    site = outputs.Site(cluster="c", nodes=())
    for name, text in FILES.items():
        yield name, text
    made = outputs.alertmanager(FILES["minimal.yaml"], FILES["alertmanager.yaml"], {}, site)
    for name, text in made.items():
        yield f"nodevitals init: {name}", text
    for configuration in ("full", "minimal"):
        secret = chart("Secret", configuration)
        yield f"chart: {configuration}", secret["stringData"]["alertmanager.yaml"]


CONFIGURATIONS = dict(configurations())


def routes(route: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield a route and those below it."""
    yield route
    for child in route.get("routes", ()):
        yield from routes(child)


def intervals_of(text: str) -> dict[str, list[dict[str, Any]]]:
    """Return the time intervals of a configuration, by their names."""
    named = yaml.safe_load(text).get("time_intervals", ())
    return {one["name"]: one["time_intervals"] for one in named}


@pytest.mark.parametrize("place", CONFIGURATIONS)
def test_every_route_notifies_at_every_hour(place: str) -> None:
    """An interval of `[]` is never; one with `{}`, which restricts nothing, is always."""
    text = CONFIGURATIONS[place]
    intervals = intervals_of(text)
    for route in routes(yaml.safe_load(text)["route"]):
        assert [name for name in route.get("mute_time_intervals", ()) if intervals[name]] == []
        active = route.get("active_time_intervals", ())
        assert not active or any({} in intervals[name] for name in active), route


def is_inside(interval: dict[str, Any], at: str) -> bool:
    """Return whether a time (UTC) is within an interval of weekdays, days of the month, hours."""
    moment = datetime.fromisoformat(at).replace(tzinfo=timezone.utc)
    local = moment.astimezone(ZoneInfo(interval["location"]))
    [weekdays], [times] = interval["weekdays"], interval["times"]
    first, _, last = weekdays.partition(":")
    days = [int(day) for day in interval.get("days_of_month", ["1:31"])[0].split(":")]
    return (
        WEEKDAYS.index(first) <= local.weekday() <= WEEKDAYS.index(last or first)
        and days[0] <= local.day <= days[1]
        and times["start_time"] <= f"{local:%H:%M}" < times["end_time"]
    )


@pytest.mark.parametrize("configuration", ["full", "minimal"])
def test_the_operators_object_has_no_hours(configuration: str) -> None:
    assert "TimeIntervals" not in str(chart("AlertmanagerConfig", configuration)["spec"])


@pytest.mark.parametrize(
    ("name", "inside", "outside"),
    [
        ("office-hours", "2026-11-03T02:00", "2026-11-03T22:00"),
        ("maintenance", "2026-11-02T19:00", "2026-11-09T19:00"),
    ],
)
def test_hours_of_a_site(name: str, inside: str, outside: str, tmp_path: Path) -> None:
    """The examples in the comments are what Alertmanager reads and what they say, in their zone."""
    text = FILES["alertmanager.yaml"]
    place = re.compile(rf"# +(\[\{{.*\}}\])\n  - name: {name}\n    time_intervals: (\[.*\])\n")
    [(example, shipped)] = place.findall(text)
    old = f"  - name: {name}\n    time_intervals: {shipped}\n"
    text = text.replace(old, old.replace(shipped, example))
    (tmp_path / "alertmanager.yaml").write_text(
        text.replace("templates/*", f"{ROOT}/alertmanager/templates/*")
    )
    argv = [str(BINARIES / "amtool"), "check-config", str(tmp_path / "alertmanager.yaml")]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    (interval,) = intervals_of(text)[name]
    assert [interval] == yaml.safe_load(example)
    assert [is_inside(interval, at) for at in (inside, outside)] == [True, False]
