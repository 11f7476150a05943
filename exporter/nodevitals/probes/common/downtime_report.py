"""Downtimes as samples and as rows of the history."""

from __future__ import annotations

from collections.abc import Mapping

from nodevitals.probe import Family, Readings
from nodevitals.probes.common.downtime import Downtime, Downtimes
from nodevitals.probes.common.link_watch import LinkWatch, now_seconds


def report(
    watch: LinkWatch,
    before: Downtimes,
    labels: Mapping[str, tuple[str, ...]],
    families: tuple[Family, Family],
    readings: Readings,
) -> Downtimes:
    """Report the links of which `labels` are known: the total of their downtime, and the longest
    outage. `before` is the state of the last run that was counted; returns the next one.
    """
    total, longest = families
    seen, ended = watch.seen()
    counted = before.links if before.boot_id == seen.boot_id else {}
    now = now_seconds()
    for name, own in labels.items():
        one = seen.links.get(name, Downtime())
        more = one.seconds - counted.get(name, Downtime()).seconds
        readings.increment(total, max(0.0, more), *own)
        readings.add(longest, one.longest_seconds(now), *own)
    for name, seconds in ended:
        readings.event(name, "outage", f"down for {seconds:.1f} s")
    return seen
