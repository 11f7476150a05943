"""Who tests whom in which slot: a pure function of the members, so that nobody has to be asked.

Within a group a round-robin tournament by the circle method: of n members every pair meets once in
n - 1 rounds (n where n is odd, each sitting out once). Every fourth slot is between groups: those
meet by the same method, and of each pair of groups a few members test each other, so that the load
between two leaves is the same in a cluster of any size.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import msgspec

ACROSS_EVERY = 4
"""One slot in so many is between groups, where there are several."""


class Meeting(msgspec.Struct, frozen=True, order=True):
    """A test: `source` starts it, `target` opens the server side."""

    source: str
    target: str


class Roster:
    """All members by group. Equal on every node that knows the same members."""

    def __init__(self, members: Iterable[tuple[str, str]], across_pairs: int = 1) -> None:
        """From (name, group); `across_pairs` tests at a time between two groups."""
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

    def meeting(self, name: str, slot: int) -> Meeting | None:
        """Whom this member meets in a slot; None for nobody. Raises KeyError for a stranger."""
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

    def meetings(self, slot: int) -> Iterator[Meeting]:
        """All tests of a slot."""
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

    def _across(self, low: int, high: int, round_number: int) -> list[Meeting]:
        """The tests between two groups: other members each time these two meet."""
        one, other = self.groups[self._names[low]], self.groups[self._names[high]]
        cycle = round_number // rounds(len(self._names))
        pairs = min(self._across_pairs, len(one), len(other))
        first = cycle * pairs
        # Moved on by one each time the first group is through, so that all pairs come in time.
        moved = first + first // len(one)
        return [
            _directed(one[(first + i) % len(one)], other[(moved + i) % len(other)], cycle + i)
            for i in range(pairs)
        ]


def rounds(count: int) -> int:
    """How many rounds a tournament of so many takes."""
    return max(1, count - 1 + count % 2)


def opponent(place: int, count: int, round_number: int) -> int | None:
    """Whom a place meets in a round of the circle method; None where it sits out."""
    last = count - 1 + count % 2  # with an odd count, nobody has this place
    turn = round_number % rounds(count)
    if place == last:
        other = turn
    else:
        other = (2 * turn - place) % last if last else place
        if other == place:
            other = last
    return other if other < count and other != place else None


def _within(group: Sequence[str], place: int, round_number: int) -> Meeting | None:
    other = opponent(place, len(group), round_number)
    if other is None:
        return None
    low, high = sorted((place, other))
    return _directed(group[low], group[high], low + high + round_number // rounds(len(group)))


def _directed(one: str, other: str, turn: int) -> Meeting:
    """In turns, each of a pair is the source."""
    return Meeting(one, other) if turn % 2 == 0 else Meeting(other, one)
