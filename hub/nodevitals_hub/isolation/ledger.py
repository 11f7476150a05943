"""The past that decisions depend on: the breaker, nodes taken out, nodes returned.

In: answers of Prometheus, limits. Out: the new ledger, one record of respond.db. Pure. Ages are
counted by the monotonic clock and only while the hub gets usable answers: a jump of the wall
clock, a restart or an outage makes none of them longer.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
from msgspec.structs import replace

from nodevitals_hub.isolation.faults import Seen
from nodevitals_hub.records import Fault, Isolation
from nodevitals_hub.settings.response import LimitsPerPool

HOUR_SECONDS = 3600.0
WEEK_SECONDS = 7 * 86400.0
LEAST_NODES = 3
"""Fewer nodes never open the breaker by their share."""
Name = tuple[str, str, str]


class Act(msgspec.Struct, frozen=True, kw_only=True):
    """A node that was taken out of service."""

    node: str
    pool: str
    time: float
    dry_run: bool
    age: float = 0.0


class Breaker(msgspec.Struct, frozen=True, kw_only=True):
    """Whether many nodes have got a fault within a short time."""

    open: bool = False
    since: float | None = None
    reason: str = ""
    quiet: float = 0.0
    """Seconds without a first fault on another node since the breaker opened."""
    counted: tuple[str, ...] = ()
    """The nodes that had a new fault since shortly before it opened."""
    recent: dict[str, float] = {}
    """Seconds since the new fault, by node."""
    known: tuple[Name, ...] = ()
    """The faults of the last answer: all others are new."""


class Ledger(msgspec.Struct, frozen=True, kw_only=True):
    """The whole record."""

    breaker: Breaker = Breaker()
    acts: tuple[Act, ...] = ()
    returned: dict[str, float] = {}
    """When the hub returned each node."""

    def within_hour(self, pool: str, dry_run: bool) -> int:
        """Nodes of a pool taken out within an hour. A dry run also counts real acts."""
        return sum(
            1
            for act in self.acts
            if act.pool == pool and act.age < HOUR_SECONDS and (dry_run or not act.dry_run)
        )

    def times(self, node: str, dry_run: bool) -> int:
        """How often a node was taken out, by the remembered acts."""
        return sum(1 for act in self.acts if act.node == node and act.dry_run == dry_run)

    def with_act(self, isolation: Isolation, now: float) -> Ledger:
        """With one more node that is taken out."""
        act = Act(node=isolation.node, pool=isolation.pool, time=now, dry_run=isolation.dry_run)
        return replace(self, acts=(*self.acts, act))

    def with_return(self, node: str, now: float) -> Ledger:
        """With a node that the hub has returned."""
        return replace(self, returned={**self.returned, node: now})


def advanced(
    ledger: Ledger,
    seen: Seen,
    faults: Sequence[Fault],
    nodes: int,
    limits: LimitsPerPool,
    now: float,
) -> Ledger:
    """The ledger after an answer with these faults; `nodes` is the size of the cluster."""
    acts = tuple(
        replace(act, age=min(HOUR_SECONDS, act.age + seen.elapsed))
        for act in ledger.acts
        if act.age < HOUR_SECONDS or 0 <= now - act.time < WEEK_SECONDS
    )
    returned = {node: time for node, time in ledger.returned.items() if now - time < WEEK_SECONDS}
    breaker = _breaker(ledger.breaker, seen, faults, nodes, limits, now)
    return replace(ledger, acts=acts, returned=returned, breaker=breaker)


def _breaker(
    before: Breaker,
    seen: Seen,
    faults: Sequence[Fault],
    nodes: int,
    limits: LimitsPerPool,
    now: float,
) -> Breaker:
    known = set(before.known)
    new = {fault.node for fault in faults if fault.identity not in known}
    recent = {
        node: age + seen.elapsed
        for node, age in before.recent.items()
        if age + seen.elapsed <= limits.breaker_within
    }
    recent.update(dict.fromkeys(sorted(new), 0.0))
    reason = _reason(len(recent), nodes, seen, limits)
    is_open = before.open or bool(reason)
    # A node whose fault comes and goes counts once: otherwise it would keep the breaker open.
    news = new - set(before.counted)
    quiet = 0.0 if news or seen.incident_open or not is_open else before.quiet + seen.elapsed
    if is_open and not reason and quiet >= limits.breaker_for:
        is_open, quiet = False, 0.0
    counted = sorted({*before.counted, *recent}) if is_open else ()
    return Breaker(
        open=is_open,
        since=(before.since if before.open else now) if is_open else None,
        reason=(reason or before.reason) if is_open else "",
        quiet=quiet,
        counted=tuple(counted),
        recent=recent,
        known=tuple(sorted({fault.identity for fault in faults})),
    )


def _reason(count: int, nodes: int, seen: Seen, limits: LimitsPerPool) -> str:
    """Why the breaker opens, or stays open; "" where it need not."""
    if seen.incident_open:
        return "a fleet incident"
    if count >= limits.breaker_nodes:
        return f"{count} nodes with a new fault (breaker_nodes: {limits.breaker_nodes})"
    if count >= LEAST_NODES and count >= limits.breaker_share * nodes:
        return (
            f"{count} of {nodes} nodes with a new fault (breaker_share: {limits.breaker_share:g})"
        )
    return ""
