"""Hours, days and time zones of the section `notify`, and the problems of that section.

Hours and days are local time in the time zone of the settings, also on days with a clock change.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import datetime, tzinfo
from typing import NamedTuple
from zoneinfo import ZoneInfo

from nodevitals.document import Problem
from nodevitals.quantities import shown
from nodevitals_hub.settings.response import NotifySettings, RouteSettings

DAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
_HOURS = re.compile(r"([01][0-9]|2[0-3]):([0-5][0-9])-([01][0-9]|2[0-3]):([0-5][0-9])")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,62}")


class Hours(NamedTuple):
    """A daily time window, in minutes from midnight. If the end is before the begin, the window
    continues into the next day, and belongs to the day of its begin.
    """

    begin: int
    end: int

    def day_of(self, moment: datetime) -> int | None:
        """The weekday whose window a local time is in; None outside."""
        minute = 60 * moment.hour + moment.minute
        if self.begin < self.end:
            return moment.weekday() if self.begin <= minute < self.end else None
        if minute >= self.begin:
            return moment.weekday()
        return (moment.weekday() - 1) % 7 if minute < self.end else None


def parse_hours(text: str) -> Hours:
    """`09:00-18:00`, or '' for the whole day. Raises ValueError with the format."""
    if not text:
        return Hours(0, 24 * 60)
    match = _HOURS.fullmatch(text)
    if match is None or match[1] + match[2] == match[3] + match[4]:
        raise ValueError(f"{shown(text)} is not a time of the day: write it like 09:00-18:00")
    begin, end = (60 * int(match[group]) + int(match[group + 1]) for group in (1, 3))
    return Hours(begin, end)


def zone_of(name: str) -> tzinfo:
    """The time zone of a name, `Asia/Shanghai`. Raises ValueError with one line."""
    try:
        return ZoneInfo(name)
    except (OSError, ValueError, KeyError):  # a folder of the database, a path, unknown
        text = f"{shown(name)} is no time zone that this machine has: write it like Asia/Shanghai,"
        raise ValueError(f"{text} or install the package tzdata") from None


def problems(settings: NotifySettings) -> Iterator[Problem]:
    """The problems in the section `notify`."""
    try:
        zone_of(settings.time_zone)
    except ValueError as error:
        yield Problem("notify.time_zone", str(error))
    for name in settings.channels:
        if not _NAME.fullmatch(name):
            text = "choose a name of letters, digits, _, . and -, of at most 63 characters"
            yield Problem(f"notify.channels.{name}", text)
    for number, route in enumerate(settings.routes):
        yield from _route_problems(f"notify.routes[{number}]", route, settings)
        if route in settings.routes[:number]:
            yield Problem(f"notify.routes[{number}]", "this route is there twice: remove one")
    if settings.owners is not None:
        path, owners = "notify.owners", settings.owners
        named = {f"{path}.channels.{owner}": name for owner, name in owners.channels.items()}
        if owners.channel:
            named[f"{path}.channel"] = owners.channel
        for where, name in named.items():
            yield from _channel_problems(where, name, settings)


def _route_problems(path: str, route: RouteSettings, settings: NotifySettings) -> Iterator[Problem]:
    for index, name in enumerate(route.channels):
        yield from _channel_problems(f"{path}.channels[{index}]", name, settings)
    if "" in route.receivers:
        text = "a receiver of Alertmanager has a name: this matches no message; write or remove it"
        yield Problem(f"{path}.receivers[{route.receivers.index('')}]", text)
    try:
        parse_hours(route.hours)
    except ValueError as error:
        yield Problem(f"{path}.hours", str(error))


def _channel_problems(path: str, name: str, settings: NotifySettings) -> Iterator[Problem]:
    if name not in settings.channels:
        yield Problem(path, f"no channel {shown(name)}: add it to notify.channels")
