"""The plan: which nodes test each other in which slot, as a pure function of the members, so that
no coordination is needed.

Within a group it is a round-robin tournament by the circle method: of n members every pair is
tested once in n - 1 rounds (n where n is odd; then one member is free in each round). Every fourth
slot is between groups: pairs of groups follow the same method, and of each pair of groups a few
members test each other, so that the load between two leaves does not depend on the cluster's size.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import msgspec

ACROSS_EVERY = 4
"""One of so many slots is between groups, where there are several."""


class Pairing(msgspec.Struct, frozen=True, order=True):
    """Two nodes that test each other: `source` starts the test, `target` runs the server side."""

    source: str
    target: str


class Roster:
    """All members by group; the same on every node that has the same lists."""

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
        """This member's pairing in a slot; None where it is free. Raises KeyError for a name that
        is not a member's.
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
                found = _within(group, place, round_number)
                if found is not None and found.source == name:
                    yield found

    def _round(self, slot: int) -> tuple[int, bool]:
        """The number of the round within groups, or between them."""
        if len(self._names) < 2:
            return slot, False
        turn, part = divmod(slot, ACROSS_EVERY)
        across = part == ACROSS_EVERY - 1
        return (turn, True) if across else (turn * (ACROSS_EVERY - 1) + part, False)

    def _across(self, low: int, high: int, round_number: int) -> list[Pairing]:
        """The pairings between two groups: other members each time."""
        one, other = self.groups[self._names[low]], self.groups[self._names[high]]
        cycle = round_number // rounds(len(self._names))
        pairs = min(self._across_pairs, len(one), len(other))
        first = cycle * pairs
        # Shifted by one whenever the first group is through, so that all pairs come in time.
        shifted = first + first // len(one)
        return [
            _directed(one[(first + i) % len(one)], other[(shifted + i) % len(other)], cycle + i)
            for i in range(pairs)
        ]


def rounds(count: int) -> int:
    """Number of rounds in a tournament of so many members."""
    return max(1, count - 1 + count % 2)


def opponent(place: int, count: int, round_number: int) -> int | None:
    """The opponent of a place in a round of the circle method; None where the place is free."""
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


def _directed(one: str, other: str, turn: int) -> Pairing:
    """The two members of a pair are the source in turns."""
    return Pairing(one, other) if turn % 2 == 0 else Pairing(other, one)
