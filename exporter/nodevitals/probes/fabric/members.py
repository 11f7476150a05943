"""The nodes that take part, with their addresses and groups, and the slots in which they test each
other.

In: lists in the configuration, file_sd files, a name service. Out: the same roster on every node
that reads the same lists, so that no coordination is needed.

Within a group it is a round-robin tournament by the circle method: of n members every pair is
tested once in n - 1 rounds (n where n is odd; then one member is free in each round). Every fourth
slot is between groups: pairs of groups follow the same method, and of each pair of groups a few
members test each other, so that the load between two leaves does not depend on the cluster's size.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence

import msgspec

from nodevitals.linux.host import Host, node_name
from nodevitals.probe import ProbeError
from nodevitals.probes.common.addresses import ListedTarget, is_address, parse_address
from nodevitals.probes.common.discovery import Discovery, DiscoveryState
from nodevitals.probes.fabric.settings import DEFAULT_PORT, FabricSettings

NAME_SECONDS = 3.0
MAX_MEMBERS = 50_000
ACROSS_EVERY = 4
"""One of so many slots is between groups, if there are several groups."""


class Pairing(msgspec.Struct, frozen=True, order=True):
    """Two nodes that test each other: `source` starts the test, `target` runs the server side."""

    source: str
    target: str


class Roster:
    """All members by group; equal on all nodes that have the same lists."""

    def __init__(self, members: Iterable[tuple[str, str]], across_pairs: int = 1) -> None:
        """From (name, group); `across_pairs` tests run at a time between two groups."""
        self._group_of = dict(members)
        groups: dict[str, list[str]] = {}
        for name in sorted(self._group_of):
            groups.setdefault(self._group_of[name], []).append(name)
        self.groups = dict(sorted(groups.items()))
        self._names = list(self.groups)
        self._across_pairs = across_pairs
        self._place = {
            name: place for group in self.groups.values() for place, name in enumerate(group)
        }

    def __contains__(self, name: str) -> bool:
        return name in self._place

    def __len__(self) -> int:
        return len(self._place)

    def pairing(self, name: str, slot: int) -> Pairing | None:
        """The pairing of a member in a slot; None if it is free. Raises KeyError for a name that is
        no member.
        """
        group = self._group_of[name]
        round_number, across = self._round(slot)
        if not across:
            return _within(self.groups[group], self._place[name], round_number)
        place = self._names.index(group)
        other = opponent(place, len(self._names), round_number)
        if other is None:
            return None
        pairs = self._across(min(place, other), max(place, other), round_number)
        return next((pair for pair in pairs if name in (pair.source, pair.target)), None)

    def pairings(self, slot: int) -> Iterator[Pairing]:
        """All pairings of a slot."""
        round_number, across = self._round(slot)
        if across:
            for place in range(len(self._names)):
                other = opponent(place, len(self._names), round_number)
                if other is not None and place < other:
                    yield from self._across(place, other, round_number)
            return
        for group in self.groups.values():
            for place, name in enumerate(group):
                pairing = _within(group, place, round_number)
                if pairing is not None and pairing.source == name:
                    yield pairing

    def _round(self, slot: int) -> tuple[int, bool]:
        """The number of the round within groups, or between them."""
        if len(self._names) < 2:
            return slot, False
        turn, part = divmod(slot, ACROSS_EVERY)
        across = part == ACROSS_EVERY - 1
        return (turn, True) if across else (turn * (ACROSS_EVERY - 1) + part, False)

    def _across(self, low: int, high: int, round_number: int) -> list[Pairing]:
        """The pairings between two groups; the members change with each round."""
        lower, upper = self.groups[self._names[low]], self.groups[self._names[high]]
        cycle = round_number // rounds(len(self._names))
        pairs = min(self._across_pairs, len(lower), len(upper))
        first = cycle * pairs
        # Shifted by one after each pass of the first group, so that all pairs occur in time.
        shifted = first + first // len(lower)
        return [
            _directed(lower[(first + i) % len(lower)], upper[(shifted + i) % len(upper)], cycle + i)
            for i in range(pairs)
        ]


def rounds(count: int) -> int:
    """Number of rounds in a tournament of so many members."""
    return max(1, count - 1 + count % 2)


def opponent(place: int, count: int, round_number: int) -> int | None:
    """The opponent of a place in a round of the circle method; None if the place is free."""
    last = count - 1 + count % 2  # with an odd count, no member has this place
    turn = round_number % rounds(count)
    if place == last:
        other = turn
    else:
        other = (2 * turn - place) % last if last else place
        if other == place:
            other = last
    return other if other < count and other != place else None


def _within(group: Sequence[str], place: int, round_number: int) -> Pairing | None:
    other = opponent(place, len(group), round_number)
    if other is None:
        return None
    low, high = sorted((place, other))
    return _directed(group[low], group[high], low + high + round_number // rounds(len(group)))


def _directed(first: str, second: str, turn: int) -> Pairing:
    """The pairing of two members, which take turns as the source."""
    return Pairing(first, second) if turn % 2 == 0 else Pairing(second, first)


class Membership(msgspec.Struct, frozen=True):
    """All members by name with their addresses, the plan's roster of them, and the name of this
    node among them.
    """

    name: str
    members: dict[str, ListedTarget]
    roster: Roster


class MemberLists:
    """The membership by the last good lists. An incomplete list would lead to a plan that differs
    from the plan of other nodes, so either all lists are used or none.
    """

    def __init__(self, settings: FabricSettings, host: Host) -> None:
        self._settings = settings
        self._host = host
        self._slot = -1
        self.membership: Membership | None = None
        self.problem = ""
        """Why the lists could not be read for this slot, in one line."""

    def load(self) -> None:
        """Read all lists. Raises ProbeError."""
        settings = self._settings
        members = load_members(settings, self._host)
        name = own_name(members, settings.name)
        self.membership = Membership(name, members, roster_of(members, settings.across_pairs))

    def refresh(self, slot: int) -> None:
        """Read all lists once per slot; the last good ones stay in use while that fails."""
        if slot == self._slot:
            return
        self._slot = slot
        try:
            self.load()
            self.problem = ""
        except ProbeError as error:
            self.problem = error.message


def load_members(settings: FabricSettings, host: Host) -> dict[str, ListedTarget]:
    """All members by name. Raises ProbeError where any list cannot be read."""
    members = {target.host: target for target in _static(settings)}
    discovery = Discovery(
        host, DiscoveryState(), DEFAULT_PORT, settings.group_by, require_files=True
    )
    deadline = time.monotonic() + NAME_SECONDS
    for _, target in discovery.targets(settings.file_sd, settings.dns_sd, deadline):
        members[target.host] = target
    for problem in discovery.problems:
        raise ProbeError("list", problem.message)
    if len(members) > MAX_MEMBERS:
        raise ProbeError("list", f"{len(members)} members, over {MAX_MEMBERS}")
    return members


def _static(settings: FabricSettings) -> list[ListedTarget]:
    listed = []
    for source in settings.static:
        group = source.labels.get(settings.group_by, "")
        for text in source.targets:
            try:
                listed.append(ListedTarget(*parse_address(text, DEFAULT_PORT), group))
            except ValueError as error:
                raise ProbeError("list", str(error)) from None
    return listed


def roster_of(members: Mapping[str, ListedTarget], across_pairs: int) -> Roster:
    """The roster of these members."""
    return Roster(((name, member.group) for name, member in members.items()), across_pairs)


def own_name(members: Mapping[str, ListedTarget], configured: str) -> str:
    """The name of this node on the lists. Raises ProbeError where it is not listed."""
    for name in (configured, node_name()):
        if name in members:
            return name
    if not configured:
        for name in members:
            if is_address(name) and _is_own(name):
                return name
    text = f"{configured or node_name()} is not among the peers; set probes.fabric.name"
    raise ProbeError("not_listed", text)


def _is_own(address: str) -> bool:
    """Whether an address belongs to this node: only then can it be bound."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        try:
            probe.bind((address, 0))
        except OSError:
            return False
    return True
