"""When the alerts of a group fire, and by when their faults began.

An alert fires once its fault has lasted for the wait of its rule, `for`; waits.json has those of
the shipped rules, by the name of the alert (generated from rules/faults/). In: a group. Out: times.
"""

from __future__ import annotations

from datetime import datetime, timedelta, tzinfo
from pathlib import Path
from typing import NamedTuple

import msgspec

from nodevitals.quantities import parse_duration
from nodevitals_hub.notify.texts.grouping import Group
from nodevitals_hub.plain_text import moment

_WAITS = msgspec.json.decode(
    Path(__file__).with_name("waits.json").read_bytes(), type=dict[str, str]
)


class Times(NamedTuple):
    """Those of the alert that fires for the longest time, and the end of the last one."""

    began: datetime
    """By then, its fault began."""
    wait: str
    """The `for` of its rule; empty where it has none, or is none of the shipped rules."""
    fires: datetime
    ended: datetime | None
    """None while one fires."""

    @property
    def lasted(self) -> timedelta | None:
        """How long they fired, in whole seconds."""
        if self.ended is None:
            return None
        return self.ended.replace(microsecond=0) - self.fires.replace(microsecond=0)

    @property
    def shown(self) -> tuple[str, str]:
        """When the fault began, with the rule's wait, and since when the alert fires."""
        wait = f" (for: {self.wait})" if self.wait else ""
        return f"{self.began:%Y-%m-%d %H:%M:%S %Z}{wait}", f"{self.fires:%Y-%m-%d %H:%M:%S %Z}"


def times_of(group: Group, zone: tzinfo) -> Times | None:
    """The times of a group in a time zone; None where no alert has a start."""
    starts = [
        (start, _WAITS.get(alert.labels.get("alertname", ""), ""))
        for alert in group.alerts
        if (start := moment(alert.starts_at, zone))
    ]
    if not starts:
        return None
    fires, wait = min(starts)
    began = fires - timedelta(seconds=parse_duration(wait) if wait else 0)
    ends = [end for alert in group.alerts if (end := moment(alert.ends_at, zone))]
    over = not group.firing and ends and max(ends) >= fires
    return Times(began, wait, fires, max(ends) if over else None)
