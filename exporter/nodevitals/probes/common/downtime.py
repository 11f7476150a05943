"""How long links were down: what looks at them saw, added up.

Pure: the time of each look goes in, in seconds since the boot. A link is down while it is expected
to be up and is not: it was up since it was last switched off, and since its driver was loaded.
Where the looks were interrupted (the agent was stopped, or the node was overloaded), it is not
known how long a link was down, unless it was before and after and has not been up in between.
"""

from __future__ import annotations

from typing import Literal, Optional

import msgspec

# Looks are a second apart. Where they are further apart than this, they were interrupted.
MAX_GAP_SECONDS = 3.0
# For the longest outage. Rules see it for so long, however few samples they get.
WINDOW_SECONDS = 3600.0
_MAX_OUTAGES = 16

# `away` is switched off, or gone: it is not expected to be up.
Sight = Literal["up", "down", "away", "unknown"]


class Outage(msgspec.Struct, frozen=True):
    """An outage that has ended, with its length."""

    ended_at: float
    seconds: float


class Downtime(msgspec.Struct):
    """How long one link was down since the boot, and what is known for the next look."""

    seconds: float = 0.0
    outages: tuple[Outage, ...] = ()
    """Each is longer than those after it: the longest of any window is the first in it."""
    seen: Literal["", "up", "down"] = ""
    looked_at: float = 0.0
    """The last look; of a link that is down."""
    down_seconds: float = 0.0
    """Of the outage that goes on."""
    down_count: Optional[int] = None
    """Number of times that the link went down by its driver, at the last look; of a link that is
    down."""

    def look(self, now: float, sight: Sight, down_count: int | None = None) -> float:
        """Take what a look saw. Returns the length of the outage that ended with it, or 0."""
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
        """End the outage that goes on, if there is one. Returns its length."""
        seconds, self.down_seconds = self.down_seconds, 0.0
        if seconds:
            longer = [outage for outage in self.outages if outage.seconds > seconds]
            kept = (*longer, Outage(self.looked_at, seconds))
            self.outages = kept[:_MAX_OUTAGES]
        self.looked_at, self.down_count = 0.0, None
        return seconds

    def longest_seconds(self, now: float) -> float:
        """The longest outage that goes on or has ended within the window; 0 without one."""
        since = now - WINDOW_SECONDS
        recent = [outage.seconds for outage in self.outages if outage.ended_at >= since]
        return max(self.down_seconds, 0.0, *recent)

    def copied(self) -> Downtime:
        """The same, to be changed apart."""
        return msgspec.structs.replace(self)


class Downtimes(msgspec.Struct):
    """The links of a node by name; kept in the state directory. `boot_id` is '' where unknown."""

    boot_id: str = ""
    links: dict[str, Downtime] = {}

    def of_boot(self, boot_id: str) -> Downtimes:
        """These, or none where they are not, or may not be, of this boot."""
        return self if boot_id and boot_id == self.boot_id else Downtimes(boot_id)
