"""As shipped, no hour keeps a notification back; a site sets its own."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest
import yaml

from nodevitals.commands.init import server_files
from nodevitals.commands.rules.backtest.routing import Route, Routing, parse_routing
from testbed.charts import of_kind, render
from testbed.node import ROOT
from testbed.servers import BINARIES

FILES = {
    name: (ROOT / "alertmanager" / name).read_text()
    for name in ("alertmanager.yaml", "minimal.yaml")
}
# Five weeks have each hour of each weekday, and the first one of the month.
FIRST = datetime(2026, 11, 1, tzinfo=timezone.utc)
HOURS = [FIRST + timedelta(hours=number) for number in range(5 * 7 * 24)]


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
    site = server_files.Site(cluster="c", nodes=())
    for name, text in FILES.items():
        yield name, text
    made = server_files.alertmanager(FILES["minimal.yaml"], FILES["alertmanager.yaml"], {}, site)
    for name, text in made.items():
        yield f"nodevitals init: {name}", text
    for configuration in ("full", "minimal"):
        secret = chart("Secret", configuration)
        yield f"chart: {configuration}", secret["stringData"]["alertmanager.yaml"]


CONFIGURATIONS = dict(configurations())


def routes(route: Route) -> Iterator[Route]:
    """Yield a route and those below it."""
    yield route
    for child in route.routes:
        yield from routes(child)


def is_sent(routing: Routing, route: Route, moment: datetime) -> bool:
    """Return whether a route notifies at a time."""

    def within(names: tuple[str, ...]) -> bool:
        found = (one for name in names for one in routing.intervals[name])
        return any(one.contains(moment.timestamp()) for one in found)

    return not within(route.mute) and (not route.active or within(route.active))


@pytest.mark.parametrize("place", CONFIGURATIONS)
def test_every_route_notifies_at_every_hour(place: str) -> None:
    routing = parse_routing(CONFIGURATIONS[place].encode())
    kept = {
        (one.path, one.receiver): moment
        for one in routes(routing.root)
        for moment in HOURS
        if not is_sent(routing, one, moment)
    }
    assert kept == {}


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
    (interval,) = parse_routing(text.encode()).intervals[name]
    assert yaml.safe_load(example)[0]["location"]
    found = [
        interval.contains(datetime.fromisoformat(at).replace(tzinfo=timezone.utc).timestamp())
        for at in (inside, outside)
    ]
    assert found == [True, False]
