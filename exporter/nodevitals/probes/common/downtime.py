"""Adds up how long links were down.

Pure: the time of each look goes in, in seconds since the boot. A link is down while it is expected
to be up and is not: it was up since it was last switched off, and since its driver was loaded.
If looks are missing (the agent was stopped, or the node was overloaded), it is unknown how long a
link was down, unless it was down before and after and has not been up in between.
"""

from __future__ import annotations

from typing import Literal, Optional

import msgspec

# Looks are a second apart. A longer pause than this means that looks are missing.
MAX_GAP_SECONDS = 3.0
# Window of the longest outage: rules see the outage for so long, however few samples they get.
WINDOW_SECONDS = 3600.0
_MAX_OUTAGES = 16

# `away`: switched off or gone, so not expected to be up.
Sight = Literal["up", "down", "away", "unknown"]


class Outage(msgspec.Struct, frozen=True):
    """An outage that has ended, with its length."""

    ended_at: float
    seconds: float


class Downtime(msgspec.Struct):
    """How long one link was down since the boot, and the state that the next look needs."""

    seconds: float = 0.0
    outages: tuple[Outage, ...] = ()
    """Each outage is longer than all after it, so the first one within a window is its longest."""
    seen: Literal["", "up", "down"] = ""
    looked_at: float = 0.0
    """Time of the last look at a link that is down."""
    down_seconds: float = 0.0
    """Seconds of the current outage."""
    down_count: Optional[int] = None
    """The driver's number of times that the link went down, at the last look; only for a link that
    is down."""

    def look(self, now: float, sight: Sight, down_count: int | None = None) -> float:
        """Add a look. Returns the length of the outage that ended with it, or 0."""
        gap = now - self.looked_at
        ended = 0.0
        if sight == "unknown":
            return ended
        if self.seen == "down":
            certain = 0 <= gap <= MAX_GAP_SECONDS
            same = gap >= 0 and down_count is not None and down_count == self.down_count
            if sight != "away" and (certain or (sight == "down" and same)):
                self.seconds += gap
                self.down_seconds += gap
            elif sight == "down":
                ended = self._end()
        if sight == "down" and self.seen:
            self.seen, self.looked_at, self.down_count = "down", now, down_count
        elif sight != "down":
            ended = self._end()
            self.seen = "up" if sight == "up" else ""
        return ended

    def _end(self) -> float:
        """End the current outage, if there is one. Returns its length."""
        seconds, self.down_seconds = self.down_seconds, 0.0
        if seconds:
            longer = [outage for outage in self.outages if outage.seconds > seconds]
            kept = (*longer, Outage(self.looked_at, seconds))
            self.outages = kept[:_MAX_OUTAGES]
        self.looked_at, self.down_count = 0.0, None
        return seconds

    def longest_seconds(self, now: float) -> float:
        """The longest outage that is current or has ended within the window; 0 without one."""
        since = now - WINDOW_SECONDS
        recent = [outage.seconds for outage in self.outages if outage.ended_at >= since]
        return max(self.down_seconds, 0.0, *recent)

    def copied(self) -> Downtime:
        """An independent copy."""
        return msgspec.structs.replace(self)


class Downtimes(msgspec.Struct):
    """The links of a node by name; kept in the state directory. `boot_id` is '' where unknown."""

    boot_id: str = ""
    links: dict[str, Downtime] = {}

    def of_boot(self, boot_id: str) -> Downtimes:
        """These downtimes; an empty record if they may come from another boot."""
        return self if boot_id and boot_id == self.boot_id else Downtimes(boot_id)
