"""The public trace of faults, `tests/data/server-faults`: rows in, faults out."""

from __future__ import annotations

import csv

import msgspec

from testbed.node import ROOT

FILE = ROOT / "tests/data/server-faults/faults.csv"
DAY_SECONDS = 86400.0
WEEK_DAYS = 7.0
# Of the whole trace, from which the file is taken.
FLEET_SERVERS = 400
FLEET_DAYS = 348
FLEET_FAULTS = 584


class Fault(msgspec.Struct, frozen=True):
    """One fault: days since the beginning of the trace, its class and description."""

    number: int
    server: str
    start_day: float
    end_day: float
    kind: tuple[str, str]

    @property
    def seconds(self) -> float:
        """How long it lasted."""
        return (self.end_day - self.start_day) * DAY_SECONDS


def faults() -> list[Fault]:
    """Return all faults, in order of their start."""
    with FILE.open(encoding="utf-8") as lines:
        rows = sorted(csv.DictReader(lines), key=lambda row: float(row["start_day"]))
    return [
        Fault(
            number,
            row["server"],
            float(row["start_day"]),
            float(row["end_day"]),
            (row["class"], row["description"]),
        )
        for number, row in enumerate(rows)
    ]


def days_since_return(found: list[Fault]) -> dict[Fault, float]:
    """Return for each fault that follows another on the same server within a week of its return
    how long after it, in days.
    """
    returned: dict[str, float] = {}
    gaps: dict[Fault, float] = {}
    for one in sorted(found, key=lambda one: one.start_day):
        if one.start_day - returned.get(one.server, -WEEK_DAYS - one.start_day) <= WEEK_DAYS:
            gaps[one] = one.start_day - returned[one.server]
        returned[one.server] = max(one.end_day, returned.get(one.server, one.end_day))
    return gaps
