"""Alertmanager's time intervals: mappings of its configuration in, a test of a time out.

https://prometheus.io/docs/alerting/0.25/configuration/#time_interval
"""

from __future__ import annotations

import calendar
import re
from collections.abc import Callable, Sequence
from datetime import datetime, timezone, tzinfo
from typing import Optional, Union
from zoneinfo import ZoneInfo

import msgspec

_DAYS = ("sunday", "monday", "tuesday", "wednesday", "thursday", "friday", "saturday")
_MONTHS = tuple(calendar.month_name[number].lower() for number in range(1, 13))
_TIME = re.compile(r"([01][0-9]|2[0-3]):([0-5][0-9])|24:00")
_Range = tuple[int, int]


class TimeRange(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """From `start_time` to before `end_time`, as HH:MM."""

    start_time: str
    end_time: str


class IntervalShape(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One time interval as the file has it; what is None does not restrict."""

    times: Optional[tuple[TimeRange, ...]] = None
    weekdays: Optional[tuple[str, ...]] = None
    days_of_month: Optional[tuple[Union[str, int], ...]] = None
    months: Optional[tuple[Union[str, int], ...]] = None
    years: Optional[tuple[Union[str, int], ...]] = None
    location: str = "UTC"


class TimeInterval:
    """Times that fit every part of a shape. Raises ValueError where the shape is not valid."""

    def __init__(self, shape: IntervalShape) -> None:
        self._zone = _zone(shape.location)
        times = [(_minute(one.start_time), _minute(one.end_time) - 1) for one in shape.times or ()]
        self._times = None if shape.times is None else times
        self._weekdays = _ranges(shape.weekdays, _DAYS.index)
        self._days = _ranges(shape.days_of_month, int)
        self._months = _ranges(shape.months, _month)
        self._years = _ranges(shape.years, int)

    def contains(self, seconds: float) -> bool:
        """Whether a time (seconds since the epoch) is inside."""
        now = datetime.fromtimestamp(seconds, self._zone)
        return (
            _within(now.hour * 60 + now.minute, self._times)
            and _within(now.isoweekday() % 7, self._weekdays)
            and _within(now.month, self._months)
            and _within(now.year, self._years)
            and _day_within(now, self._days)
        )


def _within(value: int, ranges: Sequence[_Range] | None) -> bool:
    return ranges is None or any(first <= value <= last for first, last in ranges)


def _day_within(now: datetime, ranges: Sequence[_Range] | None) -> bool:
    """Negative days count from the end of the month, of which -1 is the last."""
    days = calendar.monthrange(now.year, now.month)[1]
    counted = [tuple(day + days + 1 if day < 0 else day for day in found) for found in ranges or ()]
    return ranges is None or any(first <= now.day <= last for first, last in counted)


def _ranges(texts: Sequence[str | int] | None, number: Callable[[str], int]) -> list[_Range] | None:
    """`monday`, `monday:friday`, `1:7`, `-3:-1` as inclusive ranges."""
    if texts is None:
        return None
    found = []
    for text in texts:
        first, colon, last = str(text).lower().partition(":")
        found.append((number(first), number(last if colon else first)))
    return found


def _month(text: str) -> int:
    return _MONTHS.index(text) + 1 if text in _MONTHS else int(text)


def _minute(text: str) -> int:
    if not _TIME.fullmatch(text):
        raise ValueError(f"{text!r} is not a time: write it like 09:00")
    hours, _, minutes = text.partition(":")
    return int(hours) * 60 + int(minutes)


def _zone(name: str) -> tzinfo:
    if name == "Local":
        return datetime.now(timezone.utc).astimezone().tzinfo or timezone.utc
    try:
        return ZoneInfo(name)
    except (KeyError, OSError):
        text = f"time zone {name!r} is not on this machine"
        raise ValueError(f"{text}: install the package tzdata, or correct the name") from None
