"""Plans the pair tests of a check in rounds; in a round, a node is in at most one test.

In: a resolved request. Out: rounds, which are computed on access. The same nodes give the same
plan, in any order.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Union, overload

from nodevitals.checks.model import CheckRequest
from nodevitals.probes.fabric.members import Pairing, Roster, rounds

Round = tuple[Pairing, ...]


class Plan(Sequence[Round]):
    """The rounds of a check; none for kinds without pairs. Each round is followed by the same pairs
    in the other direction.
    """

    def __init__(self, request: CheckRequest) -> None:
        """Plan the rounds of a resolved request."""
        names = request.nodes if request.kind in ("pair", "matrix") else ()
        self._roster = Roster((name, "") for name in names)
        every = rounds(len(self._roster)) if len(self._roster) > 1 else 0
        wanted = every if request.rounds is None else min(request.rounds, every)
        # The rounds are chosen evenly from all rounds: nodes with neighbouring names are often in
        # one rack, and successive rounds of the circle method pair the same racks.
        self._numbers = [number * every // wanted for number in range(wanted)] if wanted else []
        self._last: tuple[int, Round] = (-1, ())
        self._first = request.nodes[:1] if request.kind == "pair" else ()

    def __len__(self) -> int:
        return 2 * len(self._numbers)

    @overload
    def __getitem__(self, index: int) -> Round: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Round]: ...
    def __getitem__(self, index: Union[int, slice]) -> Union[Round, Sequence[Round]]:
        if isinstance(index, slice):
            return [self[number] for number in range(*index.indices(len(self)))]
        if not -len(self) <= index < len(self):
            raise IndexError(index)
        turn, back = divmod(index % len(self), 2)
        pairings = self._pairings(self._numbers[turn])
        # The first node of a pair that a person has named is the first source.
        is_turned = bool(self._first) and pairings[0].target in self._first
        if bool(back) != is_turned:
            return tuple(Pairing(pairing.target, pairing.source) for pairing in pairings)
        return pairings

    def _pairings(self, number: int) -> Round:
        """The pairings of a round; those of the last one are kept for the other direction."""
        if self._last[0] != number:
            self._last = (number, tuple(self._roster.pairings(number)))
        return self._last[1]

    @property
    def runs(self) -> int:
        """Number of pair tests in all rounds."""
        return len(self) * (len(self._roster) // 2)

    def numbered(self) -> Iterator[tuple[int, int, Pairing]]:
        """For each test: its round, the number of its run (from 0), and its pairing."""
        number = 0
        for place in range(len(self)):
            for pairing in self[place]:
                yield place, number, pairing
                number += 1
