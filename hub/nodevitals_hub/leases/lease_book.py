"""The leases of the hub: which probes of which nodes run every second, for which client, how long.

In: requests, and a clock. Out: the wanted probes of each node. Pure, except for the clock.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Mapping
from typing import Annotated, Literal

import msgspec

from nodevitals.checks.model import NodeName, Requester
from nodevitals.document import Problem
from nodevitals.errors import Wording
from nodevitals.linux.host import Clock
from nodevitals.probes.fabric.leases import ProbeName
from nodevitals.wire import MAX_LEASED_PROBES, LeaseState
from nodevitals_hub.checks.check_requests import Member, RefusedError
from nodevitals_hub.settings.hub import LeasesSettings

MAX_LEASES = 100
SHORTEST_SECONDS = 10.0
LONGEST_SECONDS = 7 * 86400.0


class AgentError(Exception):
    """An agent did not begin or end a lease; the text is the reason, in one line."""


class LeaseWanted(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A request for second-level monitoring, as a client sends it."""

    probes: Annotated[
        tuple[ProbeName, ...], msgspec.Meta(min_length=1, max_length=MAX_LEASED_PROBES)
    ]
    nodes: tuple[NodeName, ...] = ()
    """Names of nodes."""
    where: dict[str, str] = {}
    """Labels of the nodes to choose; together with `nodes`, all of both."""
    seconds: Annotated[float, msgspec.Meta(ge=SHORTEST_SECONDS, le=LONGEST_SECONDS)] = 1800.0
    """How long."""
    note: Annotated[str, msgspec.Meta(max_length=500)] = ""
    """Why, for people."""


class HubLease(msgspec.Struct, frozen=True, kw_only=True):
    """A lease that lasts. Times are seconds since the epoch."""

    id: str
    nodes: tuple[str, ...]
    probes: tuple[str, ...]
    created: float
    until: float
    requester: Requester
    note: str = ""


class LeasedNode(msgspec.Struct, frozen=True, kw_only=True):
    """One node under leases, as its agent replied last."""

    name: str
    state: Literal["waiting", "active", "refused", "unreachable"] = "waiting"
    """waiting: not asked yet. refused: none of the probes runs more often."""
    probes: dict[str, LeaseState] = {}
    error: str = ""


class LeaseBook:
    """The current leases. They end by the monotonic clock, because the wall clock may jump."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._leases: dict[str, HubLease] = {}
        self._ends: dict[str, float] = {}

    def all(self) -> tuple[HubLease, ...]:
        """The leases, the newest first."""
        self._expire()
        return tuple(sorted(self._leases.values(), key=lambda lease: (-lease.created, lease.id)))

    def add(
        self,
        wanted: LeaseWanted,
        requester: Requester,
        members: Mapping[str, Member],
        settings: LeasesSettings,
    ) -> HubLease:
        """Begin a lease, or renew the requester's equal one. Raises RefusedError."""
        self._expire()
        if wanted.seconds > settings.max_duration:
            text = Wording("over {most}, leases.max_duration", most=f"{settings.max_duration:g}")
            raise RefusedError("invalid", Problem("seconds", text))
        chosen, probes = _chosen(wanted, members), tuple(sorted(set(wanted.probes)))
        same = (chosen, probes, requester)
        again = [
            lease.id
            for lease in self._leases.values()
            if (lease.nodes, lease.probes, lease.requester) == same
        ]
        if not again and len(self._leases) >= MAX_LEASES:
            text = Wording("there are {count} leases: end one first", count=MAX_LEASES)
            raise RefusedError("busy", text)
        self._check_room(chosen, probes, settings.max_nodes)
        now = self._clock.time()
        lease = HubLease(
            id=again[0] if again else secrets.token_hex(6),
            nodes=chosen,
            probes=probes,
            created=now,
            until=now + wanted.seconds,
            requester=requester,
            note=wanted.note,
        )
        self._keep(lease, wanted.seconds)
        return lease

    def restore(self, stored: Iterable[HubLease], longest: float) -> None:
        """Continue the leases of an earlier process."""
        for lease in stored:
            # Never longer than requested, even if the clock was set back.
            asked = lease.until - lease.created
            left = min(lease.until - self._clock.time(), asked, longest)
            if left > 0 and len(self._leases) < MAX_LEASES:
                self._keep(lease, left)

    def remove(self, identity: str) -> HubLease:
        """End a lease. Raises RefusedError."""
        self._expire()
        if identity not in self._leases:
            text = Wording("no lease {name}: it may have ended", name=repr(identity[:40]))
            raise RefusedError("not_found", text)
        del self._ends[identity]
        return self._leases.pop(identity)

    def wanted(self) -> dict[str, set[str]]:
        """The probes of all leases, by node."""
        self._expire()
        by_node: dict[str, set[str]] = {}
        for lease in self._leases.values():
            for name in lease.nodes:
                by_node.setdefault(name, set()).update(lease.probes)
        return by_node

    def left(self, node: str) -> float:
        """Seconds until the last lease of a node ends."""
        ends = [self._ends[lease.id] for lease in self._leases.values() if node in lease.nodes]
        return max(ends, default=0.0) - self._clock.monotonic()

    def next_end(self) -> float:
        """Seconds until the first lease ends; 0 without leases."""
        return max(0.0, min(self._ends.values(), default=0.0) - self._clock.monotonic())

    def _keep(self, lease: HubLease, seconds: float) -> None:
        self._leases[lease.id] = lease
        self._ends[lease.id] = self._clock.monotonic() + seconds

    def _check_room(self, chosen: Iterable[str], probes: tuple[str, ...], most: int) -> None:
        wanted = self.wanted()
        nodes = len(wanted.keys() | set(chosen))
        if nodes > most:
            text = Wording(
                "{count} nodes would be monitored every second, leases.max_nodes is {most}: choose"
                " fewer, or end a lease",
                count=nodes,
                most=most,
            )
            raise RefusedError("busy", text)
        for name in chosen:
            if len(wanted.get(name, set()) | set(probes)) > MAX_LEASED_PROBES:
                text = Wording(
                    "{name}: over {most} probes in all leases: choose fewer, or end a lease",
                    name=name,
                    most=MAX_LEASED_PROBES,
                )
                raise RefusedError("busy", text)

    def _expire(self) -> None:
        now = self._clock.monotonic()
        for identity in [identity for identity, end in self._ends.items() if end <= now]:
            del self._ends[identity], self._leases[identity]


def _chosen(wanted: LeaseWanted, members: Mapping[str, Member]) -> tuple[str, ...]:
    unknown = sorted(set(wanted.nodes) - members.keys())
    if unknown:
        text = Wording("{name} is not on the hub's lists", name=repr(unknown[0]))
        raise RefusedError("invalid", Problem("nodes", text))
    chosen = set(wanted.nodes)
    if wanted.where:
        labels = wanted.where.items()
        chosen |= {name for name, member in members.items() if labels <= member.labels.items()}
    if not chosen:
        text = Wording("no nodes: name some in nodes, or choose them by where")
        raise RefusedError("invalid", text)
    return tuple(sorted(chosen))
