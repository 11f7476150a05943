"""Leases: probes that run every second for some time, because the hub asked for it.

In: a Lease that a probe has received, and targets with their last results. Out: the interval of
each target, and a reply. Pure; a lease is nowhere but in memory, so it ends with the agent.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

from nodevitals.engine.target import Target
from nodevitals.state.history import HistoryProbe
from nodevitals.wire import Lease, LeaseReply, LeaseState, ProtocolError, decode, encode

INTERVAL_SECONDS = 1.0
# Of the interval, a run may take half: the other half is the node's.
DURATIONS_PER_INTERVAL = 2.0
# Each run of a target without a resident process is a fork.
MAX_TARGETS = 16


class Leases:
    """The lease that holds, if any. Used by the supervisor's thread alone."""

    def __init__(self) -> None:
        self._probes: frozenset[str] = frozenset()
        self.wake = math.inf
        """When the lease ends."""

    def take(self, sender: Target, body: bytes, targets: Iterable[Target], now: float) -> bytes:
        """Take a lease in place of the one before it; the reply to its sender."""
        try:
            lease = decode(body, Lease)
        except ProtocolError:
            lease = Lease((), 0.0)
        listed = list(targets)
        states = {name: self._state(name, sender, listed) for name in lease.probes}
        lasting = ("active", "failing", "slow")  # the next run may be ok, or shorter
        self._probes = frozenset(name for name, state in states.items() if state in lasting)
        self.wake = now + lease.seconds if self._probes else math.inf
        return encode(LeaseReply(lease.number, states))

    def expired(self, now: float) -> bool:
        """Whether the lease has ended just now."""
        if now < self.wake:
            return False
        self._probes, self.wake = frozenset(), math.inf
        return True

    def interval(self, target: Target, now: float) -> float:
        """The time between two runs of a target, in seconds."""
        configured = target.spec.timing.interval_seconds
        if target.spec.probe not in self._probes or now >= self.wake:
            return configured
        return min(_leased(target), configured)

    def _state(self, name: str, sender: Target, targets: Iterable[Target]) -> LeaseState:
        if name in (HistoryProbe.name, sender.spec.probe):
            return "excluded"
        own = [target for target in targets if target.spec.probe == name and not target.absent]
        if not own:
            return "off"
        if len(own) > MAX_TARGETS:
            return "targets"
        intervals = [(_leased(target), target.spec.timing.interval_seconds) for target in own]
        if any(leased < configured for leased, configured in intervals):
            return "active"
        return "failing" if all(leased == math.inf for leased, _ in intervals) else "slow"


def _leased(target: Target) -> float:
    """What a lease allows. A target whose last run failed is run as it is configured: a driver that
    hangs is not called, and its process not killed, more often than without a lease.
    """
    if target.last is None or target.last.outcome != "ok":
        return math.inf
    needed = math.ceil(DURATIONS_PER_INTERVAL * target.last.duration_seconds)
    return max(INTERVAL_SECONDS, float(needed))
